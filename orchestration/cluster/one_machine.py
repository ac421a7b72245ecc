"""A whole `ray up` cluster on this one machine: three hosts as namespaces, reached over SSH like any others.

python -m orchestration.cluster.one_machine      # up, deploy, ask, down; takes root, and some minutes
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from orchestration.cluster.hosts import Hosts
from orchestration.cluster.launcher import ENVIRONMENT, TOKEN, on_premise_file
from orchestration.cluster.namespaces import OUTSIDE_TMP, HostNetwork, NamespaceError, check_tools, hosts
from orchestration.cluster.ports import DASHBOARD
from orchestration.cluster.schema import exact_args, serve_schema
from orchestration.cluster.serve_api import ApplicationState, ClusterError, ServeApi
from orchestration.config import FleetConfig
from orchestration.ports import free_ports
from orchestration.sources import load
from services.models.cache import cache_root
from services.models.errors import ModelUnavailableError
from services.models.source import resolve

ROOT = Path(__file__).parent.parent.parent
POOLS = ("head", "target", "mtp")
FLEET: dict[str, Any] = {
    "topology.pools": {
        "head": {"cpus": 2, "memory_gib": 2},
        "target": {"cpus": 2, "memory_gib": 4},
        "mtp": {"cpus": 1, "memory_gib": 2},
    },
    "drafters.dfly.replicas": 0,
    "engine.threads": 1,
    "serve.http_host": "0.0.0.0",
}
_JOIN_TIMEOUT_S = 180.0
_DEPLOY_TIMEOUT_S = 400.0


class Cluster:
    """What `ray up` has started."""

    def __init__(self, file: Path, network: HostNetwork, token: str, log: Path) -> None:
        self._file = file
        self._network = network
        self._token = token
        self._log = log
        self.head = network.hosts[0]

    def up(self) -> None:
        self._ray("up", "--yes", "--no-config-cache", str(self._file))

    def down(self) -> None:
        self._ray("down", "--yes", str(self._file))

    @contextmanager
    def dashboard(self) -> Iterator[ServeApi]:
        """The head's dashboard listens on its loopback interface: the way there is SSH."""
        (port,) = free_ports(1)
        tunnel = subprocess.Popen(
            [
                "ssh", "-N", "-i", str(self._network.private_key), "-o", "StrictHostKeyChecking=no",
                "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
                "-L", f"127.0.0.1:{port}:127.0.0.1:{DASHBOARD}", f"root@{self.head.address}",
            ]
        )  # fmt: skip
        try:
            with ServeApi(f"http://127.0.0.1:{port}", self._token) as api:
                yield api
        finally:
            tunnel.terminate()
            tunnel.wait()

    def nodes(self) -> list[dict[str, Any]]:
        """Ray's nodes, as the head knows them."""
        command = f"RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH={TOKEN} {ENVIRONMENT}/bin/ray list nodes --format yaml"
        found: list[dict[str, Any]] | None = yaml.safe_load(self._on_head(command))
        return [node for node in found or () if node["state"] == "ALIVE"]

    def _on_head(self, command: str) -> str:
        return subprocess.run(
            [
                "ssh", "-i", str(self._network.private_key), "-o", "StrictHostKeyChecking=no",
                "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", f"root@{self.head.address}", command,
            ],
            capture_output=True, text=True, timeout=60, check=False,
        ).stdout  # fmt: skip

    def _ray(self, *arguments: str) -> None:
        ray = Path(sys.executable).with_name("ray")
        with self._log.open("ab") as log:
            result = subprocess.run([ray, *arguments], stdout=log, stderr=log, stdin=subprocess.DEVNULL, check=False)
        if result.returncode != 0:
            raise ClusterError(f"ray {arguments[0]} failed; {self._log} says why")


@contextmanager
def cluster(config: FleetConfig, folder: Path) -> Iterator[Cluster]:
    """Hosts and the file for `ray up`; nothing of Ray is started yet, and nothing is left afterwards."""
    token = secrets.token_hex(32)
    token_file = folder / "token"
    token_file.touch(mode=0o600)
    token_file.write_text(token)
    with hosts(POOLS, folder) as network:
        named = Hosts(
            pools={name: (host.address,) for name, host in zip(POOLS, network.hosts, strict=True)},
            ssh_user="root",
            ssh_private_key=str(network.private_key),
        )
        file = folder / "cluster.yaml"
        file.write_text(yaml.safe_dump(on_premise_file(config, named, _software(token_file)), sort_keys=False))
        yield Cluster(file, network, token, folder / "ray.log")


def _software(token_file: Path) -> dict[str, Any]:
    """The hosts see this machine's disk: so they run this very environment, and import what this command does."""
    return {
        "file_mounts": {TOKEN: str(token_file)},
        "setup_commands": [
            f"mkdir -p ~/draftfleet && ln -sfn {sys.prefix} {ENVIRONMENT}",
            f"echo 'export PYTHONPATH={ROOT}' > ~/.bash_profile",
        ],
    }


def run(folder: Path) -> None:
    """Raises NamespaceError, ClusterError or ModelUnavailableError."""
    check_tools()
    cache = cache_root().absolute()
    resolve("default", cache)  # once, for all hosts
    config = load(None, {**FLEET, "model.cache_dir": str(cache)}, {})
    started = time.monotonic()

    def tell(what: str) -> None:
        print(f"{time.monotonic() - started:5.0f} s  {what}", flush=True)

    with cluster(config, folder) as running:
        tell("hosts are there")
        running.up()
        tell("ray up: the head runs")
        try:
            _await_nodes(running, len(POOLS))
            tell(f"{len(POOLS)} nodes have joined")
            with running.dashboard() as api:
                _await_dashboard(api)
                state = api.deploy(serve_schema(config, exact_args(config)), _DEPLOY_TIMEOUT_S, tell)
            tell(f"deployed: {_where(state)}")
            tell(f"answered: {_ask(f'http://{running.head.address}:{config.serve.http_port}')}")
        finally:
            running.down()
        tell("ray down")
    tell("hosts are gone")


def _await_nodes(running: Cluster, wanted: int) -> None:
    deadline = time.monotonic() + _JOIN_TIMEOUT_S
    found: list[dict[str, Any]] = []
    while time.monotonic() < deadline:
        found = running.nodes()
        if len(found) == wanted:
            return
        time.sleep(2)
    raise ClusterError(f"only {len(found)} of {wanted} nodes have joined after {_JOIN_TIMEOUT_S:.0f} s")


def _await_dashboard(api: ServeApi) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            api.state()
            return
        except ClusterError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def _where(state: ApplicationState) -> str:
    return ", ".join(f"{d.name} on {replica['node_ip']}" for d in state.deployments for replica in d.replicas)


def _ask(url: str) -> str:
    """The same text with and without drafts, from another machine than the replicas'."""
    body = {"model": "default", "prompt": "One, two, three, four, five,", "max_tokens": 24, "temperature": 0}
    texts = []
    with httpx.Client(trust_env=False, timeout=120) as client:
        for drafter in ("mtp", "none"):
            reply = client.post(f"{url}/v1/completions", json={**body, "draftfleet": {"drafter": drafter}})
            reply.raise_for_status()
            texts.append(reply.json()["choices"][0]["text"])
    if texts[0] != texts[1]:
        raise ClusterError(f"the text differs with drafts: {texts[0]!r} and {texts[1]!r}")
    return repr(texts[0])


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    folder = Path(tempfile.mkdtemp(prefix="draftfleet-", dir=OUTSIDE_TMP))
    try:
        run(folder)
    except (NamespaceError, ClusterError, ModelUnavailableError, httpx.HTTPError) as error:
        sys.exit(f"error: {error}\nlogs: {folder}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
