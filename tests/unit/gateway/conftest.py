from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc.aio
import pytest
import uvicorn
from transformers import PreTrainedTokenizerFast

from services.dcut.messages import Budget, Member
from services.gateway.config import GatewayConfig
from services.gateway.fleet_view.totals import FleetTotalsView
from services.gateway.front_door import FrontDoor
from services.gateway.gateway import Gateway
from services.gateway.http import create_app
from services.gateway.targets import Route, TargetPool
from services.gateway.tokenization import Tokenization
from tests.unit.gateway.scripted import ScriptedTarget, say
from tests.unit.gateway.tokenizers import byte_level


@dataclass
class Setup:
    """A gateway over one scripted target, with both doors open."""

    gateway: Gateway
    target: ScriptedTarget
    members: list[Member]
    url: str
    grpc_address: str
    front_door: FrontDoor
    channel: grpc.aio.Channel = field(init=False)

    def __post_init__(self) -> None:
        self.channel = grpc.aio.insecure_channel(self.grpc_address)


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return byte_level()


@asynccontextmanager
async def serving(gateway: Gateway, totals: FleetTotalsView | None = None) -> AsyncIterator[str]:
    """The HTTP application behind a real server."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(create_app(gateway, totals), log_level="critical", lifespan="off"))
    running = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await running
        listening.close()


@asynccontextmanager
async def opened(
    tokenizer: PreTrainedTokenizerFast, route: Route | None = None, max_context: int = 64, **settings: object
) -> AsyncIterator[Setup]:
    config = GatewayConfig.model_validate(
        {
            "host": "127.0.0.1",
            "grpc_port": 0,
            "drain_timeout_s": 0,
            "max_tokens": 48,
            "resume_wait_s": 0.1,
            **settings,
        }
    )
    target = ScriptedTarget(say("hello", " world"), max_context=max_context)
    await target.start()
    members = [target.member()]
    pool = TargetPool(config, lambda: Budget(1, 5.0, tuple(members)), route)
    tokenization = Tokenization(tokenizer)
    gateway = Gateway(config, "tiny", tokenization, pool)
    front_door = FrontDoor(gateway)
    port = await front_door.start()
    try:
        async with serving(gateway) as url:
            setup = Setup(gateway, target, members, url, f"127.0.0.1:{port}", front_door)
            yield setup
            await setup.channel.close()
    finally:
        await front_door.stop()
        await pool.close()
        tokenization.close()
        await target.stop()


async def until(condition: Callable[[], object], timeout_s: float = 20) -> None:
    """Raises TimeoutError when the condition does not come true."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        if asyncio.get_running_loop().time() > deadline:
            raise TimeoutError
        await asyncio.sleep(0.01)


@pytest.fixture
async def setup(tokenizer: PreTrainedTokenizerFast) -> AsyncIterator[Setup]:
    async with opened(tokenizer) as ready:
        yield ready
