"""The D-cut actor as a Serve deployment of one replica, off the token path."""

from __future__ import annotations

import time
from typing import Any

from ray import serve

from services.dcut.config import DcutConfig
from services.dcut.fleet import Fleet
from services.dcut.messages import decode_report, encode


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
        self._config = DcutConfig.model_validate(config)
        # Versions start at the wall clock, so that they rise across restarts too.
        self._fleet = Fleet(self._config.budget_ttl_s, self._config.max_members, first_version=int(time.time() * 1e3))
        self._started = time.monotonic()

    async def report(self, data: bytes) -> bytes:
        """An encoded Report in, an encoded Budget out. Raises ValueError for a malformed report."""
        now = time.monotonic()
        self._fleet.register(decode_report(data), now)
        return self._encoded_budget(now)

    async def view(self) -> bytes:
        """The encoded Budget, for those who only look."""
        return self._encoded_budget(time.monotonic())

    def _encoded_budget(self, now: float) -> bytes:
        self._fleet.expire(now)
        return encode(self._fleet.budget(settled=now - self._started >= self._config.settle_s))
