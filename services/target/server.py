"""A whole target replica short of Ray: model, desk, engine and gRPC server."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import grpc
import grpc.aio
import torch
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio  # type: ignore[attr-defined]

from protos.target_pb2_grpc import add_TargetServicer_to_server
from services.dcut.local.guide import NO_GUIDE, Guide
from services.dcut.messages import Member
from services.models.tokenizer import eos_ids, load_tokenizer
from services.rpc.credential import Credential, interceptors_of
from services.rpc.ports import ANY_PORT, PortRange, bind
from services.target.config import EngineConfig
from services.target.drafting.desk import Desk
from services.target.engine import Engine
from services.target.model.loader import load_target
from services.target.numerics import fingerprint
from services.target.servicer import TargetServicer
from services.target.step_table import step_table

log = logging.getLogger(__name__)

_MAX_REQUEST_BYTES = 4 << 20


class TargetServer:
    """Loads the model in `create`, which takes seconds; start and stop on one event loop.

    Only callers that show the credential are served, where there is one; drafters are shown it.
    """

    def __init__(
        self, engine: Engine, desk: Desk, model_name: str, numerics: str = "", credential: Credential | None = None
    ) -> None:
        """`numerics`: replicas with the same one compute the same bits."""
        self._credential = credential
        self.engine = engine
        self.numerics = numerics
        self.desk = desk
        self.servicer = TargetServicer(engine, model_name)
        self._health = health_aio.HealthServicer()
        self._server: grpc.aio.Server | None = None
        self.address = ""  # host:port once started

    @classmethod
    def create(
        cls,
        folder: Path,
        model_name: str,
        config: EngineConfig,
        cache_dir: Path,
        replica: str,
        members: Callable[[], tuple[Member, ...]],
        guide: Callable[[], Guide] = lambda: NO_GUIDE,
        credential: Credential | None = None,
    ) -> TargetServer:
        """Raises ValueError for a model that cannot be a target."""
        if config.threads:
            torch.set_num_threads(config.threads)
        tokenizer = load_tokenizer(folder)
        target = load_target(
            folder,
            eos_ids(folder, tokenizer),
            config.precision,
            _device(config.device),
            config.max_step_rows,
            cache_dir,
        )
        desk = Desk(config.drafting, target.spec.vocabulary, target.spec.hidden, replica, members, credential)
        table = step_table(target, folder, config, cache_dir)
        engine = Engine(target, tokenizer, config, desk, table, guide)
        return cls(engine, desk, model_name, fingerprint(target, folder), credential)

    async def start(self, host: str, ports: PortRange = ANY_PORT) -> str:
        """Binds and serves; returns host:port. Raises OSError when it cannot bind."""
        server = grpc.aio.server(
            interceptors=interceptors_of(self._credential),
            options=(("grpc.max_receive_message_length", _MAX_REQUEST_BYTES), ("grpc.so_reuseport", 0)),
        )
        add_TargetServicer_to_server(self.servicer, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        bound = bind(server, host, ports)
        self.desk.start()
        self.engine.start()
        await server.start()
        await self._health.set("", health_pb2.HealthCheckResponse.SERVING)
        self._server = server
        self.address = f"{host}:{bound}"
        return self.address

    async def stop(self, grace_s: float = 0.0) -> None:
        """Lets running requests end for `grace_s`, then aborts them."""
        if self._server is not None:
            await self._health.enter_graceful_shutdown()
            await self._server.stop(grace_s)
            self._server = None
            self.engine.stop()
            self.desk.stop()

    def check(self) -> None:
        """Raises RuntimeError when this replica should be replaced."""
        if self._server is None or not self.engine.is_healthy:
            raise RuntimeError("the engine is not running, or failed several steps in a row")


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)
