"""How many replicas a deployment should have, from the places that are taken in those it has and from what the fleet
wants.

Serve ships this module to its controller by value: it imports nothing of the project.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


class ByOccupancy:
    """A policy of Serve's autoscaling. Replicas record `places_taken` and `places`; `occupancy` is the share of
    them to aim at. Drafters also record `wanted`: what the D-cut actor finds the work to call for. Delays and bounds
    are Serve's."""

    def __init__(self, occupancy: float) -> None:
        self._occupancy = occupancy

    def __call__(self, ctx: Any) -> tuple[int, dict[str, Any]]:
        return wanted_replicas(ctx.aggregated_metrics or {}, ctx.target_num_replicas, self._occupancy), {}


def wanted_replicas(metrics: Mapping[str, Mapping[Any, float]], num_now: int, occupancy: float) -> int:
    """Replicas that would have `occupancy` of their places taken, or more where the fleet wants more; as many as now
    where nothing is known."""
    taken, places = metrics.get("places_taken", {}), metrics.get("places", {})
    known = taken.keys() & places.keys()
    a_replica = max((places[replica] for replica in known), default=0.0)
    if a_replica <= 0.0:
        return num_now
    by_places = sum(taken[replica] for replica in known) / (occupancy * a_replica)
    wanted = max(metrics.get("wanted", {}).values(), default=0.0)
    return max(1, math.ceil(max(by_places, wanted) - 1e-9))
