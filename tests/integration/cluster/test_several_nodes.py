"""A cluster of several nodes: deployed from outside, every pool on its own nodes, every GPU given away once."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import yaml
from typer.testing import CliRunner

from orchestration.cli.main import app
from orchestration.config import FleetConfig
from orchestration.ports import free_ports
from orchestration.sources import load
from orchestration.topology import LABEL
from protos import drafting_pb2
from protos.drafting_pb2_grpc import DraftingStub
from services.router.lease_client import PROTOCOL
from services.rpc.credential import Credential
from tests.engines import make_tiny_model
from tests.integration.cluster.raylets import FakeNode, Raylets, raylets

pytestmark = pytest.mark.long

GROWTH_TIMEOUT_S = 90.0
FLEET: dict[str, Any] = {
    "topology": {
        "pools": {
            "head": {"cpus": 2, "memory_gib": 2},
            "target": {"cpus": 2, "memory_gib": 2, "gpus": 2, "gpu_type": "L4"},
            "lookup": {"cpus": 2, "memory_gib": 2, "gpus": 2, "gpu_type": "L4"},
        }
    },
    "placement": {"target": {"replicas": 2, "num_cpus": 0.5, "num_gpus": 1}},
    "drafters": {
        "lookup": {
            "replicas": 1,
            "max_replicas": 2,
            "num_cpus": 0.5,
            "num_gpus": 1,
            "ports": {"first": 41200},
            "sessions": {"max_sessions": 4, "lease_ttl_s": 600},
        },
        "mtp": {"replicas": 0},
        "dfly": {"replicas": 0},
    },
    "autoscaling": {"upscale_delay_s": 1, "look_back_s": 1},
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
    assert len(others) == 2
    with raylets(head, *others) as running:
        result = command(running, "deploy", "-c", str(fleet[0]), "--timeout", "200")
        assert result.startswith("healthy after "), result
        yield running


def command(cluster: Raylets, *arguments: str) -> str:
    reach = ["--dashboard", cluster.dashboard, "--token-file", str(cluster.token_file)]
    result = CliRunner().invoke(app, [*arguments, *reach], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.stdout


def test_a_drafter_pool_grows_when_its_places_are_taken(cluster: Raylets, fleet: tuple[Path, FleetConfig]) -> None:
    (drafter,) = drafters(fleet[1])
    with grpc.insecure_channel(drafter, options=(("grpc.enable_http_proxy", 0),)) as channel:
        request = drafting_pb2.ReserveRequest(protocol=PROTOCOL, request_id="r", sequences=4)
        with pytest.raises(grpc.RpcError) as error:
            DraftingStub(channel).Reserve(request)
        assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
        DraftingStub(channel).Reserve(request, metadata=credential(cluster).metadata)
    deadline = time.monotonic() + GROWTH_TIMEOUT_S
    while len(found := drafters(fleet[1])) < 2:
        assert time.monotonic() < deadline, "the pool did not grow"
        time.sleep(0.2)
    assert {int(address.rpartition(":")[2]) for address in found} <= set(range(41200, 41232))


def credential(cluster: Raylets) -> Credential:
    """As a replica of the cluster has it."""
    found = subprocess.run(
        [sys.executable, "-m", "tests.integration.cluster.cluster_credential", cluster.address],
        env=cluster.environment, text=True, capture_output=True, timeout=120, check=True,
    )  # fmt: skip
    return Credential(found.stdout.strip())


def drafters(config: FleetConfig) -> list[str]:
    """Addresses of those that report."""
    reply = httpx.get(f"http://127.0.0.1:{config.serve.http_port}/status", trust_env=False, timeout=30)
    return [member["address"] for member in reply.json()["members"] if member["role"] == "drafter"]


def test_every_pool_has_its_nodes_and_every_gpu_one_replica(cluster: Raylets) -> None:
    state = json.loads(command(cluster, "status", "--json"))
    replicas = [
        (deployment["name"], replica) for deployment in state["deployments"] for replica in deployment["replicas"]
    ]
    pools: dict[str, Counter[str]] = defaultdict(Counter)
    gpus: set[tuple[str, str]] = set()
    for (name, _), found in zip(replicas, placed(cluster, [replica for _, replica in replicas]), strict=True):
        pools[name][found["labels"][LABEL]] += 1
        assert len(found["gpus"]) == (name in ("Target", "Drafter-lookup"))
        gpus |= {(found["node"], gpu) for gpu in found["gpus"]}
    assert {name: set(where) for name, where in pools.items()} == {
        "Dcut": {"head"},
        "Gateway": {"head"},
        "Router": {"head"},
        "Target": {"target"},
        "Drafter-lookup": {"lookup"},
    }
    assert pools["Target"]["target"] == 2
    assert len(gpus) == 2 + pools["Drafter-lookup"]["lookup"], "a GPU was given away twice"


def placed(cluster: Raylets, replicas: list[dict[str, Any]]) -> list[dict[str, Any]]:
    result = subprocess.run(
        [sys.executable, "-m", "tests.integration.cluster.replica_gpus", cluster.address],
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


def test_a_second_deployment_of_the_same_leaves_replicas_alone(
    cluster: Raylets, fleet: tuple[Path, FleetConfig]
) -> None:
    before = targets(cluster)
    assert command(cluster, "deploy", "-c", str(fleet[0]), "--timeout", "60").startswith("healthy after ")
    assert targets(cluster) == before


def targets(cluster: Raylets) -> set[str]:
    """Replicas of the deployment that never grows."""
    state = json.loads(command(cluster, "status", "--json"))
    (target,) = [deployment for deployment in state["deployments"] if deployment["name"] == "Target"]
    return {replica["replica_id"] for replica in target["replicas"]}


def test_status_from_outside(cluster: Raylets) -> None:
    shown = command(cluster, "status")
    assert "application RUNNING" in shown
    assert "Target          HEALTHY  2/2" in shown


def test_a_stranger_is_not_let_in(cluster: Raylets) -> None:
    result = CliRunner().invoke(app, ["status", "--dashboard", cluster.dashboard])
    assert result.exit_code == 1
    assert "401" in str(result.exception)
