"""The fleet's totals, from what replicas tell of themselves. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.metrics.catalogue import METRICS
from services.metrics.messages import Counted, Snapshot
from services.metrics.metric import Series, Value

_MEMORY_S = 60.0  # that a silent replica is remembered beyond its lease
_DEFAULT_REPLICAS = 4096


@dataclass(slots=True)
class _Life:
    """One life of a replica."""

    heard: int = 0  # messages
    live_until: float = 0.0
    seen: dict[Series, Value] = field(default_factory=dict)
    gauges: Mapping[Series, float] = field(default_factory=dict)


class FleetTotals:
    """Only ever adds, so nothing that replicas do makes a total fall; a dead one's share stays.

    A new actor starts from the newest snapshot that a gateway hands it. Times are seconds of one
    monotonic clock, passed in.
    """

    def __init__(self, actor: str, max_replicas: int = _DEFAULT_REPLICAS) -> None:
        self._actor = actor
        self._max_replicas = max_replicas
        self._inherited: Mapping[Series, Value] = {}
        self._inherited_version = 0
        self._counted: dict[Series, Value] = {}  # by this actor
        self._lives: dict[str, _Life] = {}
        self._num_merged = 0

    def merge(self, counted: Counted, now: float, lease_s: float) -> None:
        """Raises ValueError when there are too many replicas and this one is new."""
        life = self._lives.get(counted.incarnation)
        if life is None:
            if len(self._lives) >= self._max_replicas:
                raise ValueError(f"replica: at most {self._max_replicas} are counted")
            life = self._lives[counted.incarnation] = _Life()
        life.heard += 1
        life.live_until = now + lease_s
        life.gauges = counted.gauges
        for series, (confirmed, value) in counted.totals.items():
            seen = life.seen.get(series, confirmed)
            # A late message tells less than is known already.
            newest = tuple(max(a, b) for a, b in zip(seen, value, strict=True))
            life.seen[series] = newest
            grown = tuple(new - old for new, old in zip(newest, seen, strict=True))
            self._counted[series] = _sum(self._counted.get(series), grown)
        self._num_merged += 1

    def expire(self, now: float) -> None:
        """Forgets those that have been silent for long; what they counted stays."""
        for name in [name for name, life in self._lives.items() if life.live_until + _MEMORY_S <= now]:
            del self._lives[name]

    def heard(self, now: float) -> dict[str, int]:
        """Messages of each live replica."""
        return {name: life.heard for name, life in self._lives.items() if life.live_until > now}

    def restore(self, snapshot: Snapshot) -> None:
        """Takes over what an earlier actor had counted, unless something newer was taken over before."""
        if snapshot.actor != self._actor and snapshot.version > self._inherited_version:
            self._inherited, self._inherited_version = snapshot.totals, snapshot.version

    def snapshot(self, now: float, *, is_settled: bool) -> Snapshot:
        totals = dict(self._inherited)
        for series, value in self._counted.items():
            totals[series] = _sum(totals.get(series), value)
        version = self._inherited_version + self._num_merged
        return Snapshot(self._actor, version, is_settled, totals, self._gauges(now))

    def _gauges(self, now: float) -> dict[Series, float]:
        found: dict[Series, list[float]] = {}
        for life in self._lives.values():
            if life.live_until > now:
                for series, value in life.gauges.items():
                    found.setdefault(series, []).append(value)
        joined = {}
        for series, values in found.items():
            kind = METRICS[series[0]].kind
            joined[series] = max(values) if kind == "max" else sum(values) / (len(values) if kind == "mean" else 1)
        return joined


def _sum(a: Value | None, b: Value) -> Value:
    return b if a is None else tuple(x + y for x, y in zip(a, b, strict=True))
