"""The service as a user starts it: `draftfleet serve` in a process of its own."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from orchestration.ports import free_ports

COMMAND = str(Path(sys.executable).with_name("draftfleet"))
_MARK = "DRAFTFLEET_TEST_RUN"
START_TIMEOUT_S = 400.0
STOP_TIMEOUT_S = 90.0


@dataclass
class Service:
    process: subprocess.Popen[str]
    http_url: str
    grpc_address: str
    mark: str
    said: list[str] = field(default_factory=list)
    lines: queue.Queue[str | None] = field(default_factory=queue.Queue)

    def wait_for(self, text: str, timeout_s: float = START_TIMEOUT_S) -> str:
        """The first line that holds `text`; fails when the process ends before."""
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0:
            try:
                line = self.lines.get(timeout=left)
            except queue.Empty:
                break
            assert line is not None, f"it ended without saying {text!r}:\n{''.join(self.said)}"
            if text in line:
                return line
        raise AssertionError(f"it did not say {text!r} in {timeout_s:.0f} s:\n{''.join(self.said)}")

    def status(self) -> dict[str, Any]:
        reply = httpx.get(f"{self.http_url}/status", timeout=10, trust_env=False)
        reply.raise_for_status()
        found: dict[str, Any] = reply.json()
        return found

    def members(self, role: str) -> list[dict[str, Any]]:
        return [member for member in self.status()["members"] if member["role"] == role]

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [COMMAND, *arguments], capture_output=True, text=True, timeout=120, check=False, env=plain_environment()
        )

    def processes(self) -> list[psutil.Process]:
        """Everything that descends from it, adopted or not."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(_MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def interrupt(self, number: int = signal.SIGINT) -> int:
        """Sends one signal to the command alone, and returns its exit status."""
        self.process.send_signal(number)
        return self.process.wait(timeout=STOP_TIMEOUT_S)


def plain_environment() -> dict[str, str]:
    return {**os.environ, "NO_COLOR": "1", "COLUMNS": "200"}


@contextmanager
def serving(*arguments: str) -> Iterator[Service]:
    """Runs `draftfleet serve` on free ports; does not wait until it is ready."""
    http_port, grpc_port = free_ports(2)
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        [COMMAND, "serve", "--http-port", str(http_port), "--grpc-port", str(grpc_port), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**plain_environment(), _MARK: mark},
        start_new_session=True,
    )
    service = Service(process, f"http://127.0.0.1:{http_port}", f"127.0.0.1:{grpc_port}", mark)

    def read() -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                service.said.append(line)
                service.lines.put(line)
        service.lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    try:
        yield service
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=STOP_TIMEOUT_S)
        for left in service.processes():
            with suppress(psutil.NoSuchProcess):
                left.kill()
