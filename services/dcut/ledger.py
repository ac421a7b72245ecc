"""What the D-cut actor does with counts: it adds them up, and tells the sum."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import Sequence

from services.dcut.messages import Budget, Member, Report
from services.metrics.defined import fleet as defined
from services.metrics.messages import Counted, Snapshot, decode_counted, decode_snapshot, encode_snapshot
from services.metrics.readings import Readings
from services.metrics.totals import FleetTotals

_log = logging.getLogger(__name__)

_GOODBYE_LEASE_S = 0.1  # a replica that goes reports a shorter one
_POLL_S = 0.01
_FULL_REPORTS = 2  # of which the second was begun after the first had come in
_FOREVER_S = 1e9


class Ledger:
    """Belongs to one event loop."""

    def __init__(self, max_replicas: int) -> None:
        self._id = secrets.token_hex(8)
        self._totals = FleetTotals(self._id, 2 * max_replicas)  # the dead are remembered for a while
        self._reports: Counter[str] = Counter()
        self._refused = 0
        self._left: Counter[tuple[str, str]] = Counter()
        self._leaving: set[str] = set()

    def refuse(self) -> None:
        """Counts a report that could not be taken."""
        self._refused += 1

    def add(self, report: Report, counts: bytes) -> None:
        """Takes what came with a report. Bad counts are dropped and counted: the report stands."""
        self._reports[report.role] += 1
        if report.lease_s < _GOODBYE_LEASE_S:
            self._leaving.add(report.replica)
        if counts:
            self.count(counts, report.lease_s)

    def count(self, counts: bytes, lease_s: float = 0.0) -> None:
        """Takes counts alone: the last ones of a replica that has said goodbye."""
        try:
            self._totals.merge(decode_counted(counts), time.monotonic(), lease_s)
        except ValueError as error:
            self._refused += 1
            _log.warning("counts were refused: %s", error)

    def gone(self, members: Sequence[Member]) -> None:
        """These have left the fleet."""
        for member in members:
            how = "stopped" if member.replica in self._leaving else "silent"
            self._leaving.discard(member.replica)
            self._left[member.role, how] += 1

    def restore(self, data: bytes) -> None:
        """Takes over an earlier actor's totals. Raises ValueError for malformed ones."""
        self._totals.restore(decode_snapshot(data))

    async def tell(self, fleet: Budget, *, wait_s: float) -> bytes:
        """An encoded Snapshot, with `fleet` as it is now.

        Waits for at most `wait_s`, until it holds all that was counted before the call.
        """
        await self._catch_up(wait_s)
        now = time.monotonic()
        self._totals.expire(now)
        readings = self._readings(fleet)
        own = {series: ((0,) * len(value), value) for series, value in readings.totals.items()}
        self._totals.merge(Counted(self._id, own, readings.gauges), now, _FOREVER_S)
        snapshot: Snapshot = self._totals.snapshot(now, is_settled=fleet.settled)
        return encode_snapshot(snapshot)

    async def _catch_up(self, wait_s: float) -> None:
        end = time.monotonic() + wait_s
        before = self._totals.heard(time.monotonic())
        before.pop(self._id, None)
        while (now := time.monotonic()) < end:
            heard = self._totals.heard(now)
            if all(heard[name] >= count + _FULL_REPORTS for name, count in before.items() if name in heard):
                break
            await asyncio.sleep(_POLL_S)

    def _readings(self, fleet: Budget) -> Readings:
        readings = Readings()
        readings.put_all(defined.REPORTS, self._reports)
        readings.put(defined.REFUSED_REPORTS, self._refused)
        readings.put_all(defined.LEFT, self._left)
        for member in fleet.members:
            readings.put(defined.REPLICAS, 1, member.role, member.kind or "none")
        for kind in fleet.kinds:
            readings.put(defined.WANTED, kind.wanted, kind.kind)
            readings.put(defined.BUSY, kind.busy, kind.kind)
            readings.put(defined.PRICE, kind.price_s, kind.kind)
        return readings
