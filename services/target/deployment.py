"""A target replica as a Serve deployment."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import ray
from ray import serve
from ray.serve.handle import DeploymentHandle

from services.dcut.guide_book import GuideBook
from services.dcut.handle import DcutLine
from services.dcut.link import FleetLink
from services.dcut.messages import Report
from services.metrics.defined.fleet import LINK_FAILURES
from services.metrics.readings import Readings
from services.models.cache import cache_root
from services.models.config import ModelConfig
from services.models.source import resolve
from services.rpc.shared import shared_credential
from services.target.config import EngineConfig
from services.target.readings import read_target
from services.target.server import TargetServer


@serve.deployment
class TargetDeployment:
    """`config` is an EngineConfig and `model` a ModelConfig, as plain dicts; `dcut` the handle of the D-cut actor."""

    async def __init__(self, config: dict[str, Any], model: dict[str, Any], dcut: DeploymentHandle[Any]) -> None:  # type: ignore[misc]  # Serve awaits it
        settings = EngineConfig.model_validate(config)
        source = ModelConfig.model_validate(model)
        self._settings = settings
        self._replica = serve.get_replica_context().replica_id.unique_id
        self._node = ray.get_runtime_context().get_node_id()

        self._line = DcutLine(dcut, self._read)
        self._link = FleetLink(self._line.exchange, self._report, settings.report_period_s)
        folder = await asyncio.to_thread(resolve, source.target, source.cache_dir)
        self._server = await asyncio.to_thread(
            TargetServer.create,
            folder.path,
            source.name or folder.name,
            settings,
            cache_root(source.cache_dir),
            self._replica,
            self._link.members,
            GuideBook(self._link),
            shared_credential(),
        )
        await self._server.start(ray.util.get_node_ip_address(), settings.ports)
        await self._link.start()  # only now has it an address to report

    def record_autoscaling_stats(self) -> dict[str, int]:
        """Sequences that run or wait here, and how many can run together."""
        load = self._server.engine.load
        return {"places_taken": load.num_running + load.num_waiting, "places": self._settings.max_sequences}

    def check_health(self) -> None:
        """Raises RuntimeError when Serve should replace this replica."""
        self._server.check()

    async def __del__(self) -> None:
        # The constructor may have failed half way.
        if hasattr(self, "_link"):
            await self._link.stop()
        if hasattr(self, "_server"):
            await self._server.stop(self._settings.drain_s)
            await self._line.last_words()

    def _read(self) -> Readings:
        readings = read_target(self._server.engine, self._server.desk.counters)
        readings.put(LINK_FAILURES, self._link.num_failures, "target")
        return readings

    def _report(self) -> Report:
        load = self._server.engine.load
        uses, costs = self._server.engine.uses
        return Report(
            role="target",
            replica=self._replica,
            address=self._server.address,
            kind="",
            version="",
            node=self._node,
            lease_s=self._settings.lease_s,
            batch=load.num_running,
            queue=load.num_waiting,
            sessions=load.num_running + load.num_waiting,
            capacity=self._settings.max_sequences,
            pid=os.getpid(),
            exactness=self._server.engine.target.verdict.exactness,
            numerics=self._server.numerics,
            uses=uses,
            costs=costs,
        )
