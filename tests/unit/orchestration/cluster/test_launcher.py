"""Files for `ray up`: Ray itself takes them in, and their numbers are the topology's."""

from __future__ import annotations

import copy
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import ValidationError
from ray.autoscaler._private.util import prepare_config, validate_config

from orchestration.cluster.hosts import Hosts
from orchestration.cluster.launcher import cloud_file, on_premise_file
from orchestration.cluster.machines import MACHINES, Cloud, machine_for
from orchestration.cluster.write import HERE, shipped, text
from orchestration.config import FleetConfig
from orchestration.sources import load
from orchestration.topology import LABEL, Pool

FLEETS = HERE / "fleets"
ON_PREMISE_HOSTS = Hosts.model_validate(yaml.safe_load((FLEETS / "on_premise.hosts.yaml").read_text()))


def fleet(name: str) -> FleetConfig:
    return load(FLEETS / f"{name}.yaml", {}, {})


@pytest.fixture(params=["aws", "gcp", "on_premise"])
def shipped_file(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((HERE / f"{request.param}.yaml").read_text())
    return found


def test_what_is_shipped_is_what_would_be_written_now() -> None:
    for path, content in shipped():
        assert path.read_text() == content, f"{path.name}: run python -m orchestration.cluster.write"


def test_ray_takes_it_in(shipped_file: dict[str, Any]) -> None:
    prepared = prepare_config(copy.deepcopy(shipped_file))
    validate_config(prepared)
    assert prepared["max_workers"] == shipped_file["max_workers"]


def test_ray_would_refuse_a_misspelt_key(shipped_file: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="idle_timeout_minute"):
        validate_config(prepare_config({**shipped_file, "idle_timeout_minute": 3}))


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_numbers_are_the_topologys(cloud: Cloud) -> None:
    config = fleet("cloud")
    counts = config.node_counts()
    prepared = prepare_config(cloud_file(cloud, config))
    types = prepared["available_node_types"]
    assert set(types) == set(config.topology.pools)
    machines = {machine.name: machine for machine in MACHINES[cloud]}
    for name, pool in config.topology.pools.items():
        node = types[name]
        assert node["resources"].get("CPU") == pool.cpus
        assert node["resources"].get("GPU", 0) == pool.gpus
        assert node["labels"][LABEL] == name
        if name != "head":
            assert (node["min_workers"], node["max_workers"]) == (counts[name].min, counts[name].max)
        machine = machines[node["node_config"].get("InstanceType") or node["node_config"]["machineType"]]
        assert (machine.gpus, machine.gpu_type) == (pool.gpus, pool.gpu_type)
        assert machine.cpus >= pool.cpus
        assert machine.memory_gib >= pool.memory_gib


def test_every_node_asks_for_the_token_and_listens_where_it_is_said(shipped_file: dict[str, Any]) -> None:
    for commands in (shipped_file["head_start_ray_commands"], shipped_file["worker_start_ray_commands"]):
        start = commands[-1]
        assert "RAY_AUTH_MODE=token" in start
        for flag in ("--min-worker-port=10020", "--max-worker-port=10219", "--node-manager-port=10010"):
            assert flag in start
    assert "--dashboard-host=127.0.0.1" in shipped_file["head_start_ray_commands"][-1]
    assert "~/.ray/auth_token" in shipped_file["file_mounts"]


def test_a_pool_that_no_machine_makes_is_told() -> None:
    with pytest.raises(ValueError, match=r"topology\.pools\.mtp: no machine of gcp that is known here has 4 CPUs"):
        machine_for("gcp", "mtp", Pool(cpus=4, memory_gib=16, gpus=1, gpu_type="L40S"))
    assert machine_for("aws", "mtp", Pool(cpus=4, memory_gib=16, gpus=1, gpu_type="L40S")).name == "g6e.xlarge"


def test_every_host_knows_its_own_share(tmp_path: Path) -> None:
    """The shell text is run as on each host, with `ray` and `hostname` in its place."""
    config = fleet("on_premise")
    tree = on_premise_file(config, ON_PREMISE_HOSTS)
    for name, addresses in ON_PREMISE_HOSTS.pools.items():
        for address in addresses:
            command = tree["head_start_ray_commands" if name == "head" else "worker_start_ray_commands"][-1]
            found = started(command, address, tmp_path)
            pool = config.topology.pools[name]
            assert found["--num-cpus"] == str(pool.cpus)
            assert found["--num-gpus"] == str(pool.gpus)
            assert found["--labels"] == f"{LABEL}={name}"
            assert json.loads(found["--resources"]) == pool.resources


def test_a_host_of_no_pool_does_not_start(tmp_path: Path) -> None:
    command = on_premise_file(fleet("on_premise"), ON_PREMISE_HOSTS)["worker_start_ray_commands"][-1]
    with pytest.raises(subprocess.CalledProcessError) as caught:
        started(command, "10.0.0.1", tmp_path)
    assert "no pool names this host" in caught.value.stderr


def started(command: str, address: str, folder: Path) -> dict[str, str]:
    """The options that `ray start` is called with on a host."""
    binaries = folder / "draftfleet" / "env" / "bin"
    binaries.mkdir(parents=True, exist_ok=True)
    for name, script in (("ray", 'printf "%s\\n" "$@"'), ("hostname", f"echo 172.17.0.1 {address} ")):
        (binaries / name).write_text(f"#!/bin/sh\n{script}\n")
        (binaries / name).chmod(0o755)
    environment = {"HOME": str(folder), "PATH": f"{binaries}:/usr/bin:/bin", "RAY_HEAD_IP": "10.0.0.10"}
    result = subprocess.run(
        ["bash", "-c", command], env=environment, capture_output=True, text=True, check=True, timeout=20
    )
    pairs = (line.partition("=") for line in result.stdout.splitlines())
    return {name: value for name, _, value in pairs}


def test_resources_of_a_pool_reach_its_hosts(tmp_path: Path) -> None:
    pools = {"head": {"cpus": 2, "memory_gib": 4, "resources": {"big": 2, "small": 1}, "labels": {"zone": "a"}}}
    config = load(None, {"topology.pools": pools}, {})
    tree = on_premise_file(config, Hosts(pools={"head": ("10.0.0.10",)}))
    found = started(tree["head_start_ray_commands"][-1], "10.0.0.10", tmp_path)
    assert json.loads(found["--resources"]) == {"big": 2, "small": 1}
    assert found["--labels"] == f"{LABEL}=head,zone=a"


@pytest.mark.parametrize(
    ("pools", "message"),
    [
        ({"head": ["10.0.0.1"], "target": ["10.0.0.1"]}, "10.0.0.1 is named twice"),
        ({"head": ["10.0.0.1", "10.0.0.2"]}, "exactly one host"),
        ({"head": ["nowhere"]}, "nowhere"),
        ({"head": ["10.0.0.1"], "lookup": ["10.0.0.2"]}, "pools.lookup: the topology has no such pool"),
        ({"head": ["10.0.0.1"]}, "pools.target: 0 hosts are too few; the replicas need at least 1"),
    ],
)
def test_hosts_that_do_not_fit_are_refused(pools: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        Hosts.model_validate({"pools": pools}).check(fleet("on_premise"))


def test_mistakes_of_the_command_are_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--hosts"):
        text("on-premise", FLEETS / "on_premise.yaml")
    with pytest.raises(ValueError, match="is not known"):
        text("azure", FLEETS / "cloud.yaml")
