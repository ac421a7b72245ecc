"""A cluster of several nodes: deployed from outside, every pool on its own nodes, every GPU given away once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from typer.testing import CliRunner

from orchestration.cli.main import app
from orchestration.config import FleetConfig
from orchestration.ports import free_ports
from orchestration.sources import load
from orchestration.topology import LABEL
from tests.e2e.raylets import FakeNode, Raylets, raylets
from tests.engines import make_tiny_model

FLEET: dict[str, Any] = {
    "topology": {
        "pools": {
            "head": {"cpus": 2, "memory_gib": 2},
            "target": {"cpus": 2, "memory_gib": 2, "gpus": 2, "gpu_type": "L4"},
            "lookup": {"cpus": 2, "memory_gib": 2, "gpus": 1, "gpu_type": "L4"},
        }
    },
    "placement": {"target": {"replicas": 2, "num_cpus": 0.5, "num_gpus": 1}},
    "drafters": {
        "lookup": {"replicas": 2, "num_cpus": 0.5, "num_gpus": 1, "ports": {"first": 41200}},
        "mtp": {"replicas": 0},
        "dfly": {"replicas": 0},
    },
    "engine": {"kv_memory_mb": 32, "max_step_rows": 64, "threads": 1, "dcut": {"profile": False}},
}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, FleetConfig]:
    folder = tmp_path_factory.mktemp("fleet")
    http_port, grpc_port = free_ports(2)
    tree = {
        **FLEET,
        "model": {"target": str(make_tiny_model("llama", folder / "tiny")), "cache_dir": str(folder / "cache")},
        "serve": {"http_host": "127.0.0.1", "http_port": http_port},
        "gateway": {"host": "127.0.0.1", "grpc_port": grpc_port},
    }
    file = folder / "fleet.yaml"
    file.write_text(yaml.safe_dump(tree))
    return file, load(file, {}, {})


def nodes_of(config: FleetConfig) -> list[FakeNode]:
    """The nodes that the topology comes to, at least."""
    return [
        FakeNode(config.topology.node_labels(name), config.topology.pools[name].cpus, config.topology.pools[name].gpus)
        for name, count in config.node_counts().items()
        for _ in range(count.min)
    ]


@pytest.fixture(scope="module")
def cluster(fleet: tuple[Path, FleetConfig]) -> Iterator[Raylets]:
    head, *others = nodes_of(fleet[1])
    assert len(others) == 3
    with raylets(head, *others) as running:
        result = command(running, "deploy", "-c", str(fleet[0]), "--timeout", "200")
        assert result.startswith("healthy after "), result
        yield running


def command(cluster: Raylets, *arguments: str) -> str:
    reach = ["--dashboard", cluster.dashboard, "--token-file", str(cluster.token_file)]
    result = CliRunner().invoke(app, [*arguments, *reach], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.stdout


def test_every_pool_has_its_nodes_and_every_gpu_one_replica(cluster: Raylets) -> None:
    state = json.loads(command(cluster, "status", "--json"))
    pools: dict[str, Counter[str]] = {}
    gpus: set[tuple[str, str]] = set()
    for deployment in state["deployments"]:
        found = placed(cluster, deployment["replicas"])
        pools[deployment["name"]] = Counter(replica["labels"][LABEL] for replica in found)
        for replica in found:
            assert len(replica["gpus"]) == (deployment["name"] in ("Target", "Drafter-lookup"))
            gpus |= {(replica["node"], gpu) for gpu in replica["gpus"]}
    assert pools == {
        "Dcut": {"head": 1},
        "Gateway": {"head": 1},
        "Router": {"head": 1},
        "Target": {"target": 2},
        "Drafter-lookup": {"lookup": 2},
    }
    assert len(gpus) == 4, "a GPU was given away twice"


def placed(cluster: Raylets, replicas: list[dict[str, Any]]) -> list[dict[str, Any]]:
    result = subprocess.run(
        [sys.executable, "-m", "tests.e2e.replica_gpus", cluster.address],
        input=json.dumps(replicas), env=cluster.environment, text=True, capture_output=True, timeout=120, check=True,
    )  # fmt: skip
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


def test_it_answers_and_drafts(cluster: Raylets, fleet: tuple[Path, FleetConfig]) -> None:
    url = f"http://127.0.0.1:{fleet[1].serve.http_port}"
    body = {"model": "default", "prompt": "ab" * 20, "max_tokens": 8, "temperature": 0}
    with httpx.Client(trust_env=False, timeout=60) as client:
        texts = []
        for drafter in ("lookup", "none"):
            reply = client.post(f"{url}/v1/completions", json={**body, "draftfleet": {"drafter": drafter}})
            assert reply.status_code == 200, reply.text
            texts.append(reply.json()["choices"][0]["text"])
        assert texts[0] == texts[1]
        members = client.get(f"{url}/status").json()["members"]
    ports = {int(member["address"].rpartition(":")[2]) for member in members if member["role"] == "drafter"}
    assert len(ports) == 2
    assert ports <= set(range(41200, 41232))


def test_status_from_outside(cluster: Raylets) -> None:
    shown = command(cluster, "status")
    assert "application RUNNING" in shown
    assert "Drafter-lookup  HEALTHY  2/2" in " ".join(shown.split("\n"))


def test_a_stranger_is_not_let_in(cluster: Raylets) -> None:
    result = CliRunner().invoke(app, ["status", "--dashboard", cluster.dashboard])
    assert result.exit_code == 1
    assert "401" in str(result.exception)
