"""The D-cut actor as a Serve deployment of one replica, off the token path."""

from __future__ import annotations

import time
from typing import Any

from ray import serve

from services.dcut.cluster.control import Control
from services.dcut.config import DcutConfig


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
        # Versions start at the wall clock, so that they rise across restarts too.
        self._control = Control(DcutConfig.model_validate(config), time.monotonic(), int(time.time() * 1e3))

    async def report(self, data: bytes) -> bytes:
        """See Control.report."""
        return self._control.report(data, time.monotonic())

    async def view(self) -> bytes:
        """The encoded Budget, for those who only look."""
        return self._control.view(time.monotonic())
