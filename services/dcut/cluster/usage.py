"""How drafter kinds do by class of request, over all targets. Pure.

Targets tell totals since they started, so that a lost report is made up by the next one, and a new
actor knows after one round of reports what the old one knew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest

from services.dcut.cluster.messages import RoundCost, Use

Key = tuple[str, str]  # kind, class

MAX_KEYS = 256


@dataclass(slots=True)
class _Target:
    """What a target has told so far."""

    told: dict[Key, Use] = field(default_factory=dict)
    costs: dict[str, float] = field(default_factory=dict)


class FleetUsage:
    """`memory`: samples of a class after which an old one counts for 1/e."""

    def __init__(self, memory: float) -> None:
        self._memory = memory
        self._targets: dict[str, _Target] = {}
        self._pools: dict[Key, Use] = {}

    def add(self, replica: str, uses: Iterable[Use], costs: Iterable[RoundCost]) -> None:
        """A target's newest report; O(what it tells)."""
        target = self._targets.setdefault(replica, _Target())
        target.costs = {cost.kind: cost.plain_steps for cost in costs}
        for use in uses:
            key = (use.kind, use.task_class)
            news = _since(target.told.get(key), use)
            target.told[key] = use
            if news is not None and (key in self._pools or len(self._pools) < MAX_KEYS):
                self._forget(use.task_class, news.samples)
                known = self._pools.get(key)
                self._pools[key] = news if known is None else _combined(known, news, _sum)

    def remove(self, replica: str) -> None:
        """It has left; what was learned from it stays."""
        self._targets.pop(replica, None)

    @property
    def pools(self) -> Mapping[Key, Use]:
        """By kind and class, over all targets and fading."""
        return self._pools

    def plain_steps(self) -> dict[str, float]:
        """Mean cost of a round by kind, over the targets that tell one."""
        told: dict[str, list[float]] = {}
        for target in self._targets.values():
            for kind, cost in target.costs.items():
                told.setdefault(kind, []).append(cost)
        return {kind: sum(costs) / len(costs) for kind, costs in told.items()}

    def _forget(self, task_class: str, samples: float) -> None:
        factor = math.exp(-samples / self._memory)
        for key, pool in self._pools.items():
            if key[1] == task_class:
                self._pools[key] = _combined(pool, pool, lambda old, _: factor * old)


def _since(before: Use | None, now: Use) -> Use | None:
    """What has come on top; None where nothing has. Totals that have fallen began anew."""
    if before is None or now.rounds < before.rounds:
        return now if now.rounds else None
    if now.rounds == before.rounds and now.verified == before.verified:
        return None
    return _combined(now, before, lambda new, old: max(new - old, 0.0))


def _combined(first: Use, second: Use, combine: Callable[[float, float], float]) -> Use:
    def by_position(of_first: tuple[float, ...], of_second: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(combine(a, b) for a, b in zip_longest(of_first, of_second, fillvalue=0.0))

    return Use(
        first.kind,
        first.task_class,
        combine(first.samples, second.samples),
        combine(first.rounds, second.rounds),
        combine(first.tokens, second.tokens),
        combine(first.squares, second.squares),
        by_position(first.verified, second.verified),
        by_position(first.accepted, second.accepted),
    )


def _sum(a: float, b: float) -> float:
    return a + b
