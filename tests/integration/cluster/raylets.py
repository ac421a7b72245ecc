"""A Ray cluster of several raylets on this machine, with GPUs that exist on paper only."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from orchestration.ports import free_ports

RAY = str(Path(sys.executable).with_name("ray"))
_MARK = "DRAFTFLEET_TEST_RUN"
_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class FakeNode:
    labels: dict[str, str]
    num_cpus: int = 2
    num_gpus: int = 0
    resources: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Raylets:
    address: str
    dashboard: str
    token_file: Path
    environment: dict[str, str]


@contextmanager
def raylets(head: FakeNode, *others: FakeNode) -> Iterator[Raylets]:
    """Every node is started as on a machine of its own, with `ray start`."""
    folder = Path(tempfile.mkdtemp(prefix="df-", dir="/tmp"))  # sockets lie in it, and their paths have to be short
    token_file = folder / "token"
    token_file.write_text(secrets.token_hex(32))
    mark = secrets.token_hex(8)
    environment = {
        **os.environ,
        _MARK: mark,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token_file),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
    }
    gcs, dashboard, client = free_ports(3)
    address = f"127.0.0.1:{gcs}"
    try:
        _start(
            head, environment, "--head", f"--port={gcs}", f"--dashboard-port={dashboard}", "--dashboard-host=127.0.0.1",
            f"--ray-client-server-port={client}", f"--temp-dir={folder}", "--object-store-memory=200000000",
        )  # fmt: skip
        join = (f"--address={address}", "--object-store-memory=100000000")
        for node in others:  # one after the other: a busy machine does not start two in the time Ray allows
            _start(node, environment, *join)
        yield Raylets(address, f"http://127.0.0.1:{dashboard}", token_file, environment)
    finally:
        _end(mark)
        shutil.rmtree(folder, ignore_errors=True)


def _start(node: FakeNode, environment: dict[str, str], *arguments: str) -> None:
    labels = ",".join(f"{key}={value}" for key, value in node.labels.items())
    subprocess.run(
        [
            RAY, "start", *arguments, "--node-ip-address=127.0.0.1", "--dashboard-agent-listen-port=0",
            f"--num-cpus={node.num_cpus}", f"--num-gpus={node.num_gpus}", f"--labels={labels}",
            f"--resources={json.dumps(node.resources)}", "--disable-usage-stats",
        ],
        env=environment, check=True, timeout=_TIMEOUT_S, stdout=subprocess.DEVNULL,
    )  # fmt: skip


def _end(mark: str) -> None:
    """Only what this run has started; `ray stop` would end every Ray of the machine."""
    ours = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(_MARK) == mark:
                ours.append(process)
    for process in ours:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(ours, timeout=10)
