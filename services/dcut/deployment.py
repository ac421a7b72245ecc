"""The D-cut actor as a Serve deployment of one replica, off the token path."""

from __future__ import annotations

import time
from typing import Any

from ray import serve

from services.dcut.cluster.control import Control
from services.dcut.config import DcutConfig
from services.dcut.ledger import Ledger
from services.dcut.messages import decode_report


@serve.deployment(
    num_replicas=1,
    max_ongoing_requests=1024,
    health_check_period_s=1.0,
    health_check_timeout_s=5.0,
    graceful_shutdown_timeout_s=2.0,
    graceful_shutdown_wait_loop_s=0.1,
)
class DcutActor:
    """`config` is a DcutConfig as a plain dict."""

    def __init__(self, config: dict[str, Any]) -> None:
        settings = DcutConfig.model_validate(config)
        # Versions start at the wall clock, so that they rise across restarts too.
        self._control = Control(settings, time.monotonic(), int(time.time() * 1e3))
        self._ledger = Ledger(settings.max_members)

    async def report(self, data: bytes, counts: bytes = b"") -> bytes:
        """An encoded Report and Counted in, an encoded Budget out. Raises ValueError for a malformed report."""
        try:
            report = decode_report(data)
            budget = self._control.take(report, time.monotonic())
        except ValueError:
            self._ledger.refuse()
            raise
        self._ledger.add(report, counts)
        self._ledger.gone(self._control.take_gone())
        return budget

    async def count(self, counts: bytes) -> None:
        """An encoded Counted of a replica that has left."""
        self._ledger.count(counts)

    async def totals(self, wait_s: float) -> bytes:
        """The fleet's encoded Snapshot; waits for reports to come in first, at most so long."""
        return await self._ledger.tell(self._control.state(time.monotonic()), wait_s=wait_s)

    async def restore(self, data: bytes) -> None:
        """Takes over the Snapshot that an earlier actor gave out. Raises ValueError for a malformed one."""
        self._ledger.restore(data)

    async def view(self) -> bytes:
        """The encoded Budget, for those who only look."""
        return self._control.view(time.monotonic())
