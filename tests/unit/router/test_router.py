"""Reservations at drafter replicas that are well, full, slow, dead or wrong."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest

from protos import drafting_pb2 as pb
from protos import drafting_pb2_grpc
from services.dcut.cluster.messages import Guidance, KindBudget
from services.dcut.messages import Budget, Member
from services.requests.task import Task
from services.router.config import RouterConfig
from services.router.messages import RouteReply, RouteRequest
from services.router.router import Router
from tests.unit.router.test_policy import member as described

Reserve = Callable[[pb.ReserveRequest, grpc.aio.ServicerContext], Awaitable[pb.ReserveReply]]


class ScriptedDrafter(drafting_pb2_grpc.DraftingServicer):
    """Reserves as the test says."""

    def __init__(self, reserve: Reserve) -> None:
        self._reserve = reserve
        self._server = grpc.aio.server()
        self.requests: list[pb.ReserveRequest] = []
        self.address = ""

    async def start(self) -> None:
        drafting_pb2_grpc.add_DraftingServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(None)

    async def Reserve(self, request: pb.ReserveRequest, context: grpc.aio.ServicerContext) -> pb.ReserveReply:
        self.requests.append(request)
        return await self._reserve(request, context)


def grants(kind: str = "mtp", token: bytes = b"t", address: str = "10.0.0.1:1") -> Reserve:
    async def reserve(request: pb.ReserveRequest, context: grpc.aio.ServicerContext) -> pb.ReserveReply:
        return pb.ReserveReply(lease=pb.Lease(address=address, kind=kind, token=token, ttl_ms=1000))

    return reserve


async def is_full(request: pb.ReserveRequest, context: grpc.aio.ServicerContext) -> pb.ReserveReply:
    await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
    raise AssertionError


async def hangs(request: pb.ReserveRequest, context: grpc.aio.ServicerContext) -> pb.ReserveReply:
    await asyncio.Event().wait()
    raise AssertionError


def at(address: str, replica: str, kind: str = "mtp", sessions: int = 0, capacity: int = 8) -> Member:
    plain = described(replica, kind=kind, sessions=sessions, capacity=capacity)
    return Member(**{**{f: getattr(plain, f) for f in Member.__dataclass_fields__}, "address": address})


@asynccontextmanager
async def fleet(
    *reserves: Reserve, clock: Callable[[], float] | None = None, **settings: object
) -> AsyncIterator[tuple[Router, list[ScriptedDrafter], list[Member]]]:
    """mtp drafters; the first is the least loaded, so it is asked first."""
    drafters = [ScriptedDrafter(reserve) for reserve in reserves]
    for drafter in drafters:
        await drafter.start()
    members = [at(drafter.address, f"d{i}", sessions=i) for i, drafter in enumerate(drafters)]
    router = Router(
        RouterConfig.model_validate(settings), lambda: Budget(1, 5.0, tuple(members)), *([clock] if clock else [])
    )
    try:
        yield router, drafters, members
    finally:
        await router.close()
        for drafter in drafters:
            await drafter.stop()


ASKED = RouteRequest("r", "t", "mtp", 2)
NOTHING = RouteReply(kind="none", replica="", lease=b"", attempts=1)


async def test_a_place_is_reserved_for_every_sequence() -> None:
    async with fleet(grants()) as (router, drafters, _):
        reply = await router.route(ASKED)
        assert (reply.kind, reply.replica, reply.attempts) == ("mtp", "d0", 1)
        assert pb.Lease.FromString(reply.lease).token == b"t"
        assert drafters[0].requests == [pb.ReserveRequest(protocol=1, request_id="r", sequences=2)]
        assert router.failed_reservations == 0


@pytest.mark.parametrize(
    "fault",
    [is_full, hangs, grants(kind="dfly"), grants(token=b""), grants(address="")],
    ids=["full", "slow", "another kind", "no token", "no address"],
)
async def test_a_replica_without_a_place_is_passed_over(fault: Reserve) -> None:
    async with fleet(fault, grants()) as (router, drafters, _):
        reply = await router.route(ASKED)
        assert (reply.replica, reply.attempts) == ("d1", 2)
        assert len(drafters[0].requests) == 1
        assert router.failed_reservations == 1


async def test_a_dead_replica_is_passed_over() -> None:
    async with fleet(grants()) as (router, _, members):
        with socket.create_server(("127.0.0.1", 0)) as closing:
            address = f"127.0.0.1:{closing.getsockname()[1]}"
        members[0] = at(members[0].address, "d0", sessions=5)
        members.append(at(address, "dead"))
        assert (await router.route(ASKED)).replica == "d0"


async def test_another_kind_replaces_the_asked_one() -> None:
    async with fleet(is_full, grants(kind="lookup")) as (router, _, members):
        members[1] = at(members[1].address, "d1", kind="lookup")
        reply = await router.route(ASKED)
        assert (reply.kind, reply.replica) == ("lookup", "d1")


async def test_without_a_place_anywhere_there_is_no_lease_and_no_error() -> None:
    async with fleet(is_full) as (router, _, members):
        assert await router.route(ASKED) == NOTHING
        members.clear()
        assert (await router.route(ASKED)).attempts == 0


async def test_attempts_are_bounded() -> None:
    async with fleet(is_full, is_full, grants(), reserve_attempts=2) as (router, drafters, _):
        assert (await router.route(ASKED)).kind == "none"
        assert [len(drafter.requests) for drafter in drafters] == [1, 1, 0]


async def test_a_burst_spreads_before_the_reports_show_it() -> None:
    now = 100.0
    async with fleet(grants(), grants(), clock=lambda: now) as (router, drafters, members):
        members[1] = at(members[1].address, "d1", sessions=0)
        for _ in range(4):
            await router.route(RouteRequest("r", "t", "mtp", 1))
        assert [len(drafter.requests) for drafter in drafters] == [2, 2]
        # By then the reports show what there is, so nothing is counted twice.
        now += 1.0
        members[1] = at(members[1].address, "d1", sessions=7)
        for _ in range(3):
            await router.route(RouteRequest("r", "t", "mtp", 1))
        assert [len(drafter.requests) for drafter in drafters] == [5, 2]


def test_a_kind_is_preferred_once() -> None:
    with pytest.raises(ValueError, match="names a kind twice"):
        RouterConfig(preference=("mtp", "mtp"))


@pytest.mark.parametrize(("field", "value"), [("priors", {"chat": {"mtp": 0.0}}), ("prior_costs", {"mtp": 1e9})])
def test_a_prior_is_bounded(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{field}.*out of range"):
        RouterConfig.model_validate({"bandit": {field: value}})


async def test_the_faster_kind_by_what_the_fleet_has_seen_is_reserved_and_a_forced_kind_wins() -> None:
    async with fleet(grants("dfly"), grants("mtp"), bandit={"explored": 0}) as (router, _, members):
        members[:] = [at(members[0].address, "d0", kind="dfly"), at(members[1].address, "d1", kind="mtp")]
        known = Budget(
            1,
            5.0,
            tuple(members),
            kinds=(KindBudget("dfly", 1, 1, 0.1, 0.0, 1.3), KindBudget("mtp", 1, 1, 0.1, 0.0, 1.2)),
            guidance=(
                seen("mtp", "chat", 1.9),
                seen("dfly", "chat", 1.6),
                seen("mtp", "code", 1.9),
                seen("dfly", "code", 3),
            ),
        )
        router._budget = lambda: known
        chat, code = Task("chat", 0.99), Task("code", 0.99)
        assert (await router.route(RouteRequest("r", "t", "auto", 1, chat))).kind == "mtp"
        assert (await router.route(RouteRequest("r", "t", "dfly", 1, chat))).kind == "dfly"
        assert (await router.route(RouteRequest("r", "t", "auto", 1, code))).kind == "dfly"
        assert router.take_unserved() == ()


async def test_a_kind_that_is_wanted_and_missing_is_told_once() -> None:
    async with fleet(grants("lookup")) as (router, _, members):
        members[:] = [at(members[0].address, "d0", kind="lookup")]
        assert (await router.route(RouteRequest("r", "t", "auto", 1, Task("chat", 0.9)))).kind == "lookup"
        assert (await router.route(RouteRequest("r", "t", "dfly", 1))).kind == "lookup"
        assert router.take_unserved() == ("dfly", "mtp")
        assert router.take_unserved() == ()


def seen(kind: str, task_class: str, tokens: float) -> Guidance:
    return Guidance(kind, task_class, 100, 3000, 3000 * tokens, 3000 * tokens**2, (0.5,), 7, True)
