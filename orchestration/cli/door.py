"""Asks the HTTP door of a running service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from orchestration.cli import options
from orchestration.cli.failure import Failure

if TYPE_CHECKING:
    import httpx

_TIMEOUT_S = 10.0


def get(url: str, path: str, api_key_file: Path | None = None, ca_file: Path | None = None) -> httpx.Response:
    """Raises Failure when the service is away, wants another key or says no."""
    import ssl

    import httpx

    key = options.read_key(api_key_file)
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    try:
        trusted = True if ca_file is None else ssl.create_default_context(cafile=str(ca_file))
        reply = httpx.get(
            f"{url.rstrip('/')}{path}", headers=headers, timeout=_TIMEOUT_S, trust_env=False, verify=trusted
        )
        if reply.status_code == httpx.codes.UNAUTHORIZED:
            raise Failure(f"{url} wants a valid API key; name a file with one by --api-key-file")
        reply.raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise Failure(
            f"no service answers at {url} ({error}). Start it with `draftfleet serve`, or name it with --url."
        ) from error
    return reply
