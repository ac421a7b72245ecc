"""draftfleet keys"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from orchestration.cli.console import err, out
from orchestration.cli.failure import Failure

if TYPE_CHECKING:
    from services.gateway.access.keys import KeyRecord

app = typer.Typer(help="API keys: who may use the doors, and how much.", no_args_is_help=True)

File = Annotated[Path, typer.Option("--file", "-f", dir_okay=False, help="The key file; made when it is not there.")]
_DEFAULT = Path("keys.json")


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="Whom it is for.")],
    file: File = _DEFAULT,
    expires_in_days: Annotated[float | None, typer.Option(min=0.001, max=36_500, help="Default: never.")] = None,
    requests_per_minute: Annotated[int | None, typer.Option(help="Requests of all kinds; default: any.")] = None,
    tokens_per_minute: Annotated[int | None, typer.Option(help="Of prompts and answers; default: any.")] = None,
    max_concurrent_requests: Annotated[int | None, typer.Option(help="Generations in progress; default: any.")] = None,
) -> None:
    """Make a key. It is shown now and never again: only its digest is kept."""
    from services.gateway.access.keyfile import changing
    from services.gateway.access.keys import KeyRecord, new_key

    made, now = new_key(), _now()
    with _told(), changing(file) as keys:
        keys.append(
            KeyRecord(
                id=made.id,
                name=name,
                digest=made.digest,
                created=now,
                expires=None if expires_in_days is None else now + timedelta(days=expires_in_days),
                requests_per_minute=requests_per_minute,
                tokens_per_minute=tokens_per_minute,
                max_concurrent_requests=max_concurrent_requests,
            )
        )
    print(made.text)
    err.print(f"Key {made.id} for {name} is in {file}. Keep the line above: it cannot be shown again.")
    err.print("Use it as an OpenAI client's api_key, or as `authorization: Bearer <key>` over gRPC.")


@app.command("list")
def list_keys(file: File = _DEFAULT) -> None:
    """Every key with its limits and its state; never the keys themselves."""
    from services.gateway.access.keyfile import load

    with _told():
        keys = load(file).keys
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("id", "name", "state", "created", "expires", "requests/min", "tokens/min", "at a time"):
        table.add_column(column, justify="right" if column in ("requests/min", "tokens/min", "at a time") else "left")
    for key in keys:
        limits = (key.requests_per_minute, key.tokens_per_minute, key.max_concurrent_requests)
        expires = "never" if key.expires is None else f"{key.expires:%Y-%m-%d %H:%M}"
        table.add_row(
            key.id, key.name, _state(key), f"{key.created:%Y-%m-%d %H:%M}", expires,
            *("any" if limit is None else str(limit) for limit in limits),
        )  # fmt: skip
    out.print(table)


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="As `list` shows it.")], file: File = _DEFAULT
) -> None:
    """Withdraw a key; running gateways refuse it within seconds."""
    from services.gateway.access.keyfile import changing

    with _told():
        if not file.exists():
            raise Failure(f"there is no key file {file}; name it with --file")
        with changing(file) as keys:
            found = next((index for index, key in enumerate(keys) if key.id == key_id), None)
            if found is None:
                raise Failure(f"{file} has no key {key_id!r}; `draftfleet keys list` shows their ids")
            if keys[found].revoked is None:
                keys[found] = keys[found].model_copy(update={"revoked": _now()})
    err.print(f"Key {key_id} is revoked.")


def _state(key: KeyRecord) -> str:
    if key.revoked is not None:
        return "revoked"
    return "expired" if key.expires is not None and key.expires <= _now() else "valid"


def _now() -> datetime:
    return datetime.now(timezone.utc).replace(microsecond=0)


@contextmanager
def _told() -> Iterator[None]:
    from filelock import Timeout
    from pydantic import ValidationError

    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise Failure(f"{first['loc'][0]}: {first['input']!r}: {first['msg']}") from error
    except (OSError, ValueError, Timeout) as error:
        raise Failure(str(error)) from error
