"""How many replicas are wanted for how many places taken."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from ray.serve.config import AutoscalingConfig

from orchestration.app import application
from orchestration.autoscaling import ByOccupancy, wanted_replicas
from orchestration.sources import load


@pytest.mark.parametrize(
    ("taken", "wanted"),
    [([0], 1), ([7], 1), ([8], 2), ([10, 10], 3), ([10, 11], 3), ([10, 12], 4), ([0, 0, 0], 1), ([70], 10)],
)
def test_places_taken_decide(taken: list[int], wanted: int) -> None:
    metrics = {
        "places_taken": {f"r{i}": float(n) for i, n in enumerate(taken)},
        "places": {f"r{i}": 10.0 for i in range(len(taken))},
    }
    assert wanted_replicas(metrics, len(taken), occupancy=0.7) == wanted


def test_the_fleet_may_want_more() -> None:
    metrics = {"places_taken": {"a": 1.0, "b": 0.0}, "places": {"a": 10.0, "b": 10.0}, "wanted": {"a": 3.0, "b": 2.5}}
    assert wanted_replicas(metrics, 2, 0.7) == 3
    assert wanted_replicas({**metrics, "wanted": {"a": 0.0}}, 2, 0.7) == 1


def test_nothing_known_changes_nothing() -> None:
    assert wanted_replicas({}, 3, 0.7) == 3
    assert wanted_replicas({"places_taken": {"r": 5.0}}, 3, 0.7) == 3
    assert wanted_replicas({"places_taken": {"r": 5.0}, "places": {"r": 0.0}}, 3, 0.7) == 3


@dataclass
class Context:
    target_num_replicas: int
    aggregated_metrics: dict[str, dict[str, float]] | None = field(default=None)


def test_serve_takes_the_policy_in() -> None:
    flags = {"drafters.lookup": {"replicas": 2, "max_replicas": 5}, "autoscaling.occupancy": 0.5}
    gateway = application(load(None, flags, {}))
    router = gateway._bound_deployment.init_args[3]
    drafters = {app._bound_deployment.name: app._bound_deployment for app in router._bound_deployment.init_args[2:]}
    scaling = drafters["Drafter-lookup"]._deployment_config.autoscaling_config
    assert isinstance(scaling, AutoscalingConfig)
    assert (scaling.min_replicas, scaling.max_replicas) == (2, 5)
    policy = scaling.policy.get_policy()(**scaling.policy.policy_kwargs)
    taken = {"places_taken": {"a": 3.0, "b": 4.0}, "places": {"a": 4.0, "b": 4.0}}
    assert policy(Context(2, taken)) == (4, {})
    assert policy(Context(2)) == ByOccupancy(0.5)(Context(2)) == (2, {})
    assert drafters["Drafter-mtp"]._deployment_config.autoscaling_config is None
