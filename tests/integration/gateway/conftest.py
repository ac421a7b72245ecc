"""The whole path without Ray: gateway, router, a real engine and a real drafter, each with its own fleet link."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from services.dcut.cluster.control import Control
from services.dcut.config import DcutConfig
from services.dcut.ledger import Ledger
from services.dcut.link import FleetLink
from services.dcut.messages import Report, decode_report
from services.drafters.config import DrafterConfig
from services.drafters.readings import read_drafter
from services.drafters.registry import kind_of
from services.drafters.server import DrafterServer
from services.gateway.config import GatewayConfig
from services.gateway.fleet_view.totals import FleetTotalsView
from services.gateway.front_door import FrontDoor
from services.gateway.gateway import Gateway
from services.gateway.readings import read_gateway
from services.gateway.targets import TargetPool
from services.gateway.tokenization import Tokenization
from services.metrics.readings import Readings
from services.metrics.reporter import CountReporter
from services.models.tokenizer import load_tokenizer
from services.router.config import RouterConfig
from services.router.readings import read_router
from services.router.router import Router
from services.rpc.credential import Credential
from services.target.config import EngineConfig
from services.target.readings import read_target
from services.target.server import TargetServer
from tests.engines import make_tiny_model, tiny_tokenizer
from tests.unit.gateway.conftest import serving

PERIOD_S = 0.05
CHAT_TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant] "


@dataclass
class Service:
    url: str
    grpc_address: str
    gateway: Gateway
    targets: list[TargetServer]
    drafter: DrafterServer
    router: Router
    running_targets: dict[str, TargetServer]
    start_target: Callable[[str], Awaitable[TargetServer]]
    kill_target: Callable[[str], Awaitable[None]]
    replace_ledger: Callable[[], None]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = make_tiny_model("llama", tmp_path_factory.mktemp("gateway") / "tiny")
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(made)
    return made


def report(role: str, replica: str, address: str, kind: str = "", sessions: int = 0) -> Report:
    return Report(
        role=role,  # type: ignore[arg-type]
        replica=replica,
        address=address,
        kind=kind,
        version="1",
        node="node",
        lease_s=1.0,
        sessions=sessions,
        capacity=16,
        pid=os.getpid(),
    )


@asynccontextmanager
async def running(folder: Path, num_targets: int = 1, **gateway: object) -> AsyncIterator[Service]:
    """Targets draft only by the leases that the router finds them."""
    control, ledger, dead = Control(DcutConfig(settle_s=0), time.monotonic()), Ledger(64), set[str]()
    credential = Credential.random()

    async with AsyncExitStack() as stack:

        async def linked(described: Callable[[], Report], read: Callable[[], Readings]) -> FleetLink:
            reporter = CountReporter(read)

            async def exchange(data: bytes) -> bytes:
                counts, sent = reporter.message()
                report = decode_report(data)
                if report.replica in dead:
                    raise ConnectionError("the dead do not report")
                budget = control.take(report, time.monotonic())
                ledger.add(report, counts)
                ledger.gone(control.take_gone())
                reporter.confirm(sent)
                return budget

            link = FleetLink(exchange, described, PERIOD_S)
            await link.start()
            stack.push_async_callback(link.stop)
            return link

        config = DrafterConfig(kind="lookup")
        drafter = DrafterServer(config, kind_of(config).build(config), "drafter-0", credential)
        await drafter.start("127.0.0.1")
        stack.push_async_callback(drafter.stop)
        await linked(
            lambda: report("drafter", "drafter-0", drafter.address, "lookup", drafter.num_sessions),
            lambda: read_drafter(drafter, config),
        )

        targets: dict[str, TargetServer] = {}

        async def start_target(name: str) -> TargetServer:
            engine = EngineConfig.model_validate(
                {"kv_memory_mb": 32, "max_step_rows": 64, "threads": 1, "gather_ms": 50}
                # A step of so small a model is over before a draft comes, and no draft would be worth it.
                | {"dcut": {"mode": "off"}}
                | {"drafting": {"kinds": [], "local_lookup": False, "min_wait_ms": 500, "max_wait_ms": 500}}
            )
            target = TargetServer.create(folder, "tiny", engine, folder.parent, name, tuple, credential=credential)
            await target.start("127.0.0.1")
            stack.push_async_callback(target.stop)
            await linked(
                lambda: report("target", name, target.address, "", target.engine.load.num_running),
                lambda: read_target(target.engine, target.desk.counters),
            )
            targets[name] = target
            return target

        async def kill_target(name: str) -> None:
            dead.add(name)
            await targets.pop(name).stop()

        for number in range(num_targets):
            await start_target(f"target-{number}")

        async def read(wait_s: float) -> bytes:
            return await ledger.tell(control.state(time.monotonic()), wait_s=wait_s)

        async def restore(data: bytes) -> None:
            ledger.restore(data)

        def replace_ledger() -> None:
            nonlocal ledger
            ledger = Ledger(64)

        routers: list[Router] = []
        routing = await linked(
            lambda: report("router", "router-0", ""), lambda: read_router(routers[0]) if routers else Readings()
        )
        router = Router(RouterConfig(reserve_timeout_s=5.0), lambda: routing.budget, credential=credential)
        routers.append(router)
        stack.push_async_callback(router.close)

        settings = GatewayConfig.model_validate(
            {"host": "127.0.0.1", "grpc_port": 0, "drain_timeout_s": 0, "health_period_s": 0.05, **gateway}
        )
        doors: list[Gateway] = []
        view = await linked(
            lambda: report("gateway", "gateway-0", ""), lambda: read_gateway(doors[0]) if doors else Readings()
        )
        tokenization = Tokenization(load_tokenizer(folder))
        await tokenization.warm_up()
        stack.callback(tokenization.close)
        pool = TargetPool(settings, lambda: view.budget, router.route, credential=credential)
        stack.push_async_callback(pool.close)
        door = Gateway(settings, "tiny", tokenization, pool)
        doors.append(door)
        front_door = FrontDoor(door)
        port = await front_door.start()
        stack.push_async_callback(front_door.stop)
        totals = FleetTotalsView(read, restore, wait_s=settings.totals_wait_s, period_s=settings.totals_period_s)
        url = await stack.enter_async_context(serving(door, totals))
        yield Service(
            url,
            f"127.0.0.1:{port}",
            door,
            list(targets.values()),
            drafter,
            router,
            targets,
            start_target,
            kill_target,
            replace_ledger,
        )
