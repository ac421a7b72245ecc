"""What the fleet is told, from what it reports. Pure: the caller passes the clock."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from services.dcut.cluster.config import ClusterConfig
from services.dcut.cluster.lengths import conditional, worthwhile
from services.dcut.cluster.messages import Guidance, KindBudget
from services.dcut.cluster.replicas import Demand
from services.dcut.cluster.shortage import Shortage
from services.dcut.cluster.usage import FleetUsage
from services.dcut.messages import Report

_MAX_KINDS = 16


@dataclass(slots=True)
class _Kind:
    shortage: Shortage = field(default_factory=Shortage)
    demand: Demand = field(default_factory=Demand)
    busy: dict[str, float] = field(default_factory=dict)  # by replica, as last reported


@dataclass(frozen=True, slots=True)
class Plan:
    """The part of a budget that is not the list of members."""

    kinds: tuple[KindBudget, ...] = ()
    guidance: tuple[Guidance, ...] = ()


class Planner:
    """Holds nothing of any request. `observe` costs O(one report), `plan` O(kinds, classes and drafter replicas)."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._usage = FleetUsage(config.memory)
        self._kinds: dict[str, _Kind] = {}
        self._unserved: Counter[str] = Counter()
        self._lengths: dict[tuple[str, str], int] = {}
        self._planned_at: float | None = None

    def observe(self, report: Report) -> None:
        """A report of a replica that is in the fleet."""
        if report.role == "target":
            self._usage.add(report.replica, report.uses, report.costs)
        elif report.role == "drafter":
            kind = self._kind(report.kind)
            if kind is not None:
                kind.busy[report.replica] = report.busy
        elif report.role == "router":
            self._unserved.update(kind for kind in report.unserved if self._kind(kind) is not None)

    def remove(self, replica: str) -> None:
        """A replica has left the fleet."""
        self._usage.remove(replica)
        for kind in self._kinds.values():
            kind.busy.pop(replica, None)

    def plan(self, now: float) -> Plan:
        """To be called a few times a second; prices and wanted numbers move by the time between two calls."""
        passed_s = 0.0 if self._planned_at is None else max(now - self._planned_at, 0.0)
        self._planned_at = now
        costs = self._usage.plain_steps()
        kinds = []
        for name, kind in sorted(self._kinds.items()):
            replicas = len(kind.busy)
            busy = sum(kind.busy.values()) / replicas if replicas else 0.0
            kind.shortage.observe(busy, passed_s, self._gains(name), self._config)
            short = kind.shortage
            kind.demand.observe(
                replicas, short.busy, short.price_s > 0, self._unserved.pop(name, 0), passed_s, self._config
            )
            kinds.append(
                KindBudget(name, replicas, kind.demand.wanted, short.busy, short.price_s, costs.get(name, 0.0))
            )
        return Plan(tuple(kinds), tuple(self._guidance(*key) for key in sorted(self._usage.pools)))

    def _guidance(self, name: str, task_class: str) -> Guidance:
        key = (name, task_class)
        pool = self._usage.pools[key]
        self._lengths[key] = worthwhile(pool, self._lengths.get(key, 0))
        kind = self._kinds.get(name)
        return Guidance(
            name,
            task_class,
            pool.samples,
            pool.rounds,
            pool.tokens,
            pool.squares,
            conditional(pool),
            self._lengths[key],
            kind is None or kind.shortage.admits(task_class),
        )

    def _gains(self, name: str) -> dict[str, float]:
        return {
            task_class: pool.tokens / pool.rounds - 1
            for (kind, task_class), pool in self._usage.pools.items()
            if kind == name and pool.rounds
        }

    def _kind(self, name: str) -> _Kind | None:
        if name and name not in self._kinds and len(self._kinds) < _MAX_KINDS:
            self._kinds[name] = _Kind()
        return self._kinds.get(name)
