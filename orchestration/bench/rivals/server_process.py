"""A rival's server in a process of its own, for as long as it is measured."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

_START_TIMEOUT_S = 1800.0  # vllm compiles first, and a busy machine takes its time
_STOP_TIMEOUT_S = 30.0
_POLL_S = 0.5
_TOLD_LINES = 15


class ServerError(RuntimeError):
    """A server did not come up; the message ends with its last words."""


@contextmanager
def serving(command: Sequence[str], variables: dict[str, str], port: int, log: Path) -> Iterator[str]:
    """The base address of its API, once it lists its models. Raises ServerError."""
    url = f"http://127.0.0.1:{port}"
    with log.open("w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **variables}, start_new_session=True
        )
        try:
            _wait(process, url, log)
            yield url
        finally:
            _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Asks it to end, then ends whatever is left of its session: its workers too."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_TIMEOUT_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    with httpx.Client(trust_env=False, timeout=5.0) as client:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise ServerError(f"it ended with {process.returncode}:\n{_last_words(log)}")
            try:
                if client.get(f"{url}/v1/models").status_code == httpx.codes.OK:
                    return
            except httpx.HTTPError:
                pass  # it does not listen yet
            time.sleep(_POLL_S)
    raise ServerError(f"it was not ready after {_START_TIMEOUT_S:.0f} s:\n{_last_words(log)}")


def _last_words(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-_TOLD_LINES:])
