"""The router as a Serve deployment."""

from __future__ import annotations

import os
from typing import Any

import ray
from ray import serve
from ray.serve.handle import DeploymentHandle

from services.dcut.handle import DcutLine
from services.dcut.link import FleetLink
from services.dcut.messages import Report
from services.metrics.defined.fleet import LINK_FAILURES
from services.metrics.readings import Readings
from services.router.config import RouterConfig
from services.router.messages import RouteReply, RouteRequest
from services.router.readings import read_router
from services.router.router import Router
from services.rpc.shared import shared_credential


@serve.deployment
class RouterDeployment:
    """`config` is a RouterConfig as a plain dict, `dcut` the handle of the D-cut actor.

    `pools` are the handles of target and drafters. They are not called, but a
    deployment belongs to the application only when another one holds its handle.
    """

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self, config: dict[str, Any], dcut: DeploymentHandle[Any], *routed: DeploymentHandle[Any]
    ) -> None:
        self._config = RouterConfig.model_validate(config)
        self._replica = serve.get_replica_context().replica_id.unique_id
        self._node = ray.get_runtime_context().get_node_id()
        self._routing = 0

        self._router = Router(self._config, lambda: self._link.budget, credential=shared_credential())
        self._line = DcutLine(dcut, self._read)
        self._link = FleetLink(self._line.exchange, self._report, self._config.report_period_s)
        await self._link.start()

    async def route(self, request: RouteRequest) -> RouteReply:
        """See Router.route."""
        self._routing += 1
        try:
            return await self._router.route(request)
        finally:
            self._routing -= 1

    async def __del__(self) -> None:
        # The constructor may have failed half way.
        if hasattr(self, "_link"):
            await self._link.stop()
        if hasattr(self, "_router"):
            await self._router.close()

    def _read(self) -> Readings:
        readings = read_router(self._router)
        readings.put(LINK_FAILURES, self._link.num_failures, "router")
        return readings

    def _report(self) -> Report:
        return Report(
            role="router",
            replica=self._replica,
            address="",
            kind="",
            version="",
            node=self._node,
            lease_s=self._config.lease_s,
            batch=self._routing,
            pid=os.getpid(),
            unserved=self._router.take_unserved(),
        )
