"""Hosts as namespaces of this machine, as `python -m orchestration.cluster.one_machine` uses them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestration.cluster.namespaces import OUTSIDE_TMP, Host, HostNetwork, NamespaceError, check_tools, hosts


@pytest.fixture
def network() -> Iterator[HostNetwork]:
    try:
        check_tools()
    except NamespaceError as error:
        pytest.skip(str(error))
    folder = Path(tempfile.mkdtemp(dir=OUTSIDE_TMP))
    try:
        with hosts(("one", "two"), folder) as made:
            yield made
    finally:
        shutil.rmtree(folder)
    assert subprocess.run(["ip", "link", "show", "draftfleet0"], capture_output=True).returncode != 0


def on(network: HostNetwork, host: Host, command: str) -> str:
    result = subprocess.run(
        [
            "ssh", "-i", str(network.private_key), "-o", "StrictHostKeyChecking=no", "-o",
            "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", f"root@{host.address}", command,
        ],
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_hosts_are_apart_and_reach_each_other(network: HostNetwork) -> None:
    one, two = network.hosts
    assert on(network, one, "hostname -I") == one.address
    assert on(network, two, "hostname -I") == two.address
    on(network, one, "touch ~/mine /tmp/mine")
    assert on(network, two, "ls ~ /tmp | grep mine || true") == ""
    assert (one.home / "mine").exists()
    here = os.getpid()
    assert on(network, one, f"test -e /proc/{here}/environ && tr '\\0' '\\n' < /proc/{here}/environ || true") == ""
    assert on(network, one, f"timeout 5 bash -c '</dev/tcp/{two.address}/22' && echo open") == "open"
