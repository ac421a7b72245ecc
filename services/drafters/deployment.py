"""A drafter replica as a Serve deployment."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import time
from typing import Any

import ray
from ray import serve
from ray.serve.handle import DeploymentHandle

from services.dcut.handle import DcutLine
from services.dcut.link import FleetLink
from services.dcut.messages import Report
from services.drafters.config import DrafterConfig
from services.drafters.readings import read_drafter
from services.drafters.registry import Target, kind_of
from services.drafters.server import DrafterServer
from services.metrics.defined.fleet import LINK_FAILURES
from services.metrics.readings import Readings
from services.models.cache import cache_root
from services.models.config import ModelConfig
from services.models.source import resolve
from services.rpc.shared import shared_credential


@serve.deployment
class DrafterDeployment:
    """`config` is a DrafterConfig and `model` a ModelConfig, as plain dicts; `dcut` the handle of the D-cut actor."""

    async def __init__(self, config: dict[str, Any], model: dict[str, Any], dcut: DeploymentHandle[Any]) -> None:  # type: ignore[misc]  # Serve awaits it
        self._config = DrafterConfig.model_validate(config)
        kind = kind_of(self._config)
        self._replica = serve.get_replica_context().replica_id.unique_id
        self._node = ray.get_runtime_context().get_node_id()

        target = None
        if kind.has_weights:
            import torch

            torch.set_num_threads(self._config.threads)
            source = ModelConfig.model_validate(model)
            folder = await asyncio.to_thread(resolve, source.target, source.cache_dir)
            target = Target(folder.path, folder.name, cache_root(source.cache_dir))
        drafter = await asyncio.to_thread(kind.build, self._config, target)
        self._server = DrafterServer(self._config, drafter, self._replica, shared_credential())
        await self._server.start(ray.util.get_node_ip_address(), self._config.ports)
        self._reported = time.monotonic(), 0.0  # when the newest report was made, and the time worked until then
        self._line = DcutLine(dcut, self._read)
        self._link = FleetLink(self._line.exchange, self._report, self._config.report_period_s)
        await self._link.start()  # only now has it an address to report

    def record_autoscaling_stats(self) -> dict[str, int]:
        """Places that are open or reserved here, all there are, and the replicas that the fleet wants of the kind."""
        server = self._server
        kinds = self._link.budget.kinds if self._link.is_fresh else ()
        return {
            "places_taken": server.num_sessions + server.num_reserved,
            "places": self._config.sessions.max_sessions,
            "wanted": next((kind.wanted for kind in kinds if kind.kind == self._config.kind), 0),
        }

    def check_health(self) -> None:
        """Raises RuntimeError when Serve should replace this replica."""
        self._server.check()

    async def __del__(self) -> None:
        # The constructor may have failed half way.
        if hasattr(self, "_link"):
            await self._link.stop()  # leaves the fleet view first, so that nobody new comes
        if hasattr(self, "_server"):
            await self._server.drain()
            await self._server.stop()
            await self._line.last_words()

    def _read(self) -> Readings:
        readings = read_drafter(self._server, self._config)
        readings.put(LINK_FAILURES, self._link.num_failures, "drafter")
        return readings

    def _report(self) -> Report:
        server = self._server
        now, busy_s = time.monotonic(), server.metrics.busy_s
        passed_s, worked_s = now - self._reported[0], busy_s - self._reported[1]
        self._reported = now, busy_s
        return Report(
            role="drafter",
            replica=self._replica,
            address=server.address,
            kind=self._config.kind,
            version=importlib.metadata.version("draftfleet"),
            node=self._node,
            lease_s=self._config.lease_s,
            batch=server.metrics.last_batch,
            queue=server.num_reserved,
            sessions=server.num_sessions + server.num_reserved,
            capacity=self._config.sessions.max_sessions,
            pid=os.getpid(),
            busy=worked_s / passed_s if passed_s > 0 else 0.0,
        )
