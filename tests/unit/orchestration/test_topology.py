"""Pools, what they hold, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestration.config import FleetConfig
from orchestration.machine import fit
from orchestration.nodes import Demand, NodeCount, node_counts
from orchestration.sources import ConfigError, load
from orchestration.topology import LABEL, Pool, Topology

GPU_POOLS: dict[str, Any] = {
    "head": {"cpus": 4, "memory_gib": 16},
    "target": {"cpus": 8, "memory_gib": 32, "gpus": 1, "gpu_type": "H100"},
    "mtp": {"cpus": 4, "memory_gib": 16, "gpus": 2, "gpu_type": "L4", "labels": {"zone": "a"}},
}
GPU_FLEET: dict[str, Any] = {
    "topology.pools": GPU_POOLS,
    "placement.target": {"replicas": 2, "max_replicas": 6, "num_cpus": 4, "num_gpus": 1},
    "drafters.mtp": {"replicas": 1, "max_replicas": 8, "num_cpus": 1, "num_gpus": 0.5},
    "drafters.dfly.replicas": 0,
}


def test_without_pools_everything_runs_anywhere() -> None:
    config = load(None, {}, {})
    assert config.node_counts() == {}
    assert config.topology.selector("target") == {}


def test_nodes_follow_from_replicas() -> None:
    config = load(None, GPU_FLEET, {})
    assert config.node_counts() == {"head": NodeCount(1, 1), "target": NodeCount(2, 6), "mtp": NodeCount(1, 2)}
    assert config.topology.selector("mtp") == {LABEL: "mtp", "zone": "a"}
    for name in ("gateway", "lookup"):
        assert config.topology.selector(name) == {LABEL: "head"}


def test_gateways_need_a_node_each() -> None:
    pools = {**GPU_POOLS, "gateway": {"cpus": 16, "memory_gib": 32}}
    config = load(None, {**GPU_FLEET, "topology.pools": pools, "placement.gateway.replicas": 3}, {})
    assert config.node_counts()["gateway"] == NodeCount(3, 3)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"placement.target.tensor_parallel_size": 2}, "tensor parallelism is not supported yet, so it must be 1"),
        ({"placement.target": {"replicas": 3, "max_replicas": 2}}, "placement.target.max_replicas: 2 is out of range"),
        ({"topology.pools": {"target": {"cpus": 1, "memory_gib": 1}}}, "need a pool `head` too"),
        ({"topology.pools": {"tarjet": {"cpus": 1, "memory_gib": 1}}}, "topology.pools.tarjet"),
        ({"topology.pools": {"head": {"cpus": 1, "memory_gib": 1, "gpus": 1}}}, "name both or neither"),
        (
            {"topology.pools": {"head": {"cpus": 1, "memory_gib": 1, "labels": {"ray.io/x": "y"}}}},
            "the prefixes ray.io/ and draftfleet/ are taken",
        ),
        (
            {**GPU_FLEET, "placement.target": {"num_gpus": 2}},
            "placement.target.num_gpus: 2 is more than a node of the pool `target` has, 1",
        ),
        (
            {**GPU_FLEET, "drafters.lookup.resources": {"big": 1}},
            "drafters.lookup.big: 1 is more than a node of the pool `head` has, 0",
        ),
        ({**GPU_FLEET, "placement.gateway.replicas": 2}, "2 such nodes would be needed"),
        (
            {"placement.target.num_gpus": 0.5, "drafters.mtp.num_gpus": 0.5},
            "drafters.mtp.num_gpus: 0.5 beside placement.target.num_gpus: 0.5 could be parts of one GPU",
        ),
    ],
)
def test_what_cannot_work_is_refused(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, flags, {})
    assert message in str(caught.value)


def test_a_gpu_is_shared_only_when_told() -> None:
    halves = {"placement.target.num_gpus": 0.5, "drafters.mtp.num_gpus": 0.5}
    load(None, {**halves, "topology.share_gpus": True}, {})
    load(None, {"placement.target.num_gpus": 1, "drafters.mtp.num_gpus": 0.5}, {})  # a whole one is never shared
    apart = {**GPU_FLEET, "placement.target": {"num_gpus": 0.5}}
    load(None, apart, {})  # on nodes of their own
    with pytest.raises(ValueError, match="parts of one GPU"):
        fit(load(None, apart, {}), cores=2, has_gpu=True)  # one machine has no pools
    with pytest.raises(ValueError, match="parts of one GPU"):
        fit(load(None, {"placement.target.replicas": 2, "drafters.mtp.num_gpus": 0.5}, {}), cores=2, has_gpu=True)


def test_a_drafter_without_replicas_asks_for_nothing() -> None:
    config = load(None, {**GPU_FLEET, "drafters.dfly": {"replicas": 0, "num_gpus": 8, "max_replicas": 9}}, {})
    assert config.node_counts()["head"] == NodeCount(1, 1)


def test_what_is_shown_can_be_read_again() -> None:
    config = load(None, GPU_FLEET, {})
    assert FleetConfig.model_validate(config.model_dump(mode="json")) == config


@given(
    st.integers(1, 16),
    st.integers(0, 8),
    st.lists(
        st.tuples(st.sampled_from([0.1, 0.25, 0.5, 1.0, 3.0]), st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0])), max_size=4
    ),
    st.lists(st.integers(1, 40), min_size=4, max_size=4),
)
def test_nodes_are_enough_and_few(cpus: int, gpus: int, shares: list[tuple[float, float]], replicas: list[int]) -> None:
    """Between the plain sum and one node a replica."""
    topology = Topology(
        pools={
            "head": Pool(cpus=1, memory_gib=1),
            "target": Pool(cpus=cpus, memory_gib=1, gpus=gpus, gpu_type="L4" if gpus else None),
        }
    )
    demands = [
        Demand("d", "target", count, count, num_cpus, num_gpus)
        for (num_cpus, num_gpus), count in zip(shares, replicas, strict=False)
        if num_cpus <= cpus and num_gpus <= gpus
    ]
    found = node_counts(topology, demands)["target"]
    total = sum(d.replicas for d in demands)
    least_cpu = math.ceil(sum(d.replicas * d.num_cpus for d in demands) / cpus - 1e-6)
    least_gpu = math.ceil(sum(d.replicas * d.num_gpus for d in demands) / gpus - 1e-6) if gpus else 0
    assert max(least_cpu, least_gpu) <= found.min == found.max <= total
