"""The Serve handle of the D-cut actor, as replicas use it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from ray.serve.handle import DeploymentHandle

from services.metrics.readings import Readings
from services.metrics.reporter import CountReporter

_log = logging.getLogger(__name__)

_LAST_WORDS_TIMEOUT_S = 1.0


class DcutLine:
    """One replica's calls to the actor. `read` gives what the replica has counted."""

    def __init__(self, dcut: DeploymentHandle[Any], read: Callable[[], Readings]) -> None:
        # By value: a reference into the object store would cost another round trip.
        self._report = dcut.report.options(_by_reference=False)
        self._count = dcut.count.options(_by_reference=False)
        self._reporter = CountReporter(read)

    async def exchange(self, report: bytes) -> bytes:
        """Sends a report and the counts, and brings the budget back."""
        counts, sent = self._reporter.message()
        reply: bytes = await self._report.remote(report, counts)
        self._reporter.confirm(sent)
        return reply

    async def last_words(self) -> None:
        """Counts of what a replica finished after it had said goodbye."""
        counts, _ = self._reporter.message()
        try:
            await asyncio.wait_for(self._count.remote(counts), _LAST_WORDS_TIMEOUT_S)
        except Exception as error:  # the way to the actor raises errors of many kinds
            _log.warning("the last counts of this replica were lost: %s: %s", type(error).__name__, error)


class DcutTotals:
    """The fleet's totals, as a gateway asks the actor for them."""

    def __init__(self, dcut: DeploymentHandle[Any]) -> None:
        self._totals = dcut.totals.options(_by_reference=False)
        self._restore = dcut.restore.options(_by_reference=False)

    async def read(self, wait_s: float) -> bytes:
        snapshot: bytes = await self._totals.remote(wait_s)
        return snapshot

    async def restore(self, snapshot: bytes) -> None:
        await self._restore.remote(snapshot)
