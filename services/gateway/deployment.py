"""The gateway as a Serve deployment: HTTP through Serve, gRPC by its own server."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import ray
from fastapi import FastAPI
from ray import serve
from ray.serve.handle import DeploymentHandle

from services.dcut.handle import DcutLine, DcutTotals
from services.dcut.link import FleetLink
from services.dcut.messages import Report
from services.gateway.config import GatewayConfig
from services.gateway.fleet_view.totals import FleetTotalsView
from services.gateway.front_door import FrontDoor
from services.gateway.gateway import Gateway
from services.gateway.http import create_app
from services.gateway.readings import read_gateway
from services.gateway.targets import TargetPool
from services.gateway.tokenization import Tokenization
from services.metrics.defined.fleet import LINK_FAILURES
from services.metrics.readings import Readings
from services.models.config import ModelConfig
from services.models.source import resolve
from services.models.tokenizer import load_tokenizer
from services.router.messages import RouteReply, RouteRequest
from services.rpc.shared import shared_credential


@serve.deployment
@serve.ingress()
class GatewayDeployment:
    """`config` is a GatewayConfig and `model` a ModelConfig, both as plain dicts;
    `dcut` and `router` are handles."""

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self,
        config: dict[str, Any],
        model: dict[str, Any],
        dcut: DeploymentHandle[Any],
        router: DeploymentHandle[Any],
    ) -> None:
        self._config = GatewayConfig.model_validate(config)
        named = ModelConfig.model_validate(model)
        self._replica = serve.get_replica_context().replica_id.unique_id
        self._node = ray.get_runtime_context().get_node_id()
        self._address = ""
        route = router.route.options(_by_reference=False)

        async def ask_route(request: RouteRequest) -> RouteReply:
            reply: RouteReply = await route.remote(request)
            return reply

        folder = await asyncio.to_thread(resolve, named.target, named.cache_dir)
        tokenizer = await asyncio.to_thread(load_tokenizer, folder.path)
        self._line = DcutLine(dcut, self._read)
        self._link = FleetLink(self._line.exchange, self._report, self._config.report_period_s)
        actor = DcutTotals(dcut)
        self._totals = FleetTotalsView(
            actor.read, actor.restore, wait_s=self._config.totals_wait_s, period_s=self._config.totals_period_s
        )
        self._targets = TargetPool(self._config, lambda: self._link.budget, ask_route, credential=shared_credential())
        self._tokenization = Tokenization(tokenizer)
        await self._tokenization.warm_up()
        self._gateway = Gateway(self._config, named.name or folder.name, self._tokenization, self._targets)
        self._front_door = FrontDoor(self._gateway)
        port = await self._front_door.start()
        self._address = f"{ray.util.get_node_ip_address()}:{port}"
        await self._link.start()
        self._totals.start()

    def __serve_build_asgi_app__(self) -> FastAPI:
        return create_app(self._gateway, self._totals)

    async def describe(self) -> bytes:
        """A serialised draftfleet.v1.ModelInfo. Raises ApiError when no target answers."""
        return (await self._gateway.model_info()).SerializeToString()

    async def __del__(self) -> None:
        """Serve has let the HTTP requests end by now; open gRPC calls get their own time."""
        # The constructor may have failed half way.
        if hasattr(self, "_front_door"):
            await self._front_door.stop()
        if hasattr(self, "_totals"):
            await self._totals.stop()
        if hasattr(self, "_link"):
            await self._link.stop()
        if hasattr(self, "_targets"):
            await self._targets.close()
        if hasattr(self, "_tokenization"):
            self._tokenization.close()

    def _read(self) -> Readings:
        readings = read_gateway(self._gateway)
        readings.put(LINK_FAILURES, self._link.num_failures, "gateway")
        return readings

    def _report(self) -> Report:
        return Report(
            role="gateway",
            replica=self._replica,
            address=self._address,
            kind="",
            version="",
            node=self._node,
            lease_s=self._config.lease_s,
            sessions=self._gateway.admission.active,
            capacity=self._config.max_concurrent_requests,
            pid=os.getpid(),
        )
