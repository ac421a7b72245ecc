"""Replicas that fail, fill up or come and go, and the lease that is handed over beside the prefill."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

import grpc
import grpc.aio
import pytest

from protos import drafting_pb2, target_pb2
from protos import generation_pb2 as pb
from services.dcut.messages import Budget, Member
from services.gateway.config import GatewayConfig
from services.gateway.errors import ApiError, ErrorKind
from services.gateway.targets import Route, TargetCall, TargetPool
from services.requests.sampling import SamplingParams
from services.requests.speculation import Speculation
from services.requests.task import Task
from services.router.messages import RouteReply, RouteRequest
from tests.unit.gateway.conftest import until
from tests.unit.gateway.scripted import Script, ScriptedTarget, fail, finish, member, say, stop_short

HELLO = ["hello", ""]


CODE = Task("code", 0.75)


def call(n: int = 1, speculation: Speculation | None = None, timeout_s: float = 20) -> TargetCall:
    return TargetCall((5, 6), SamplingParams(max_tokens=4, seed=1, n=n), speculation or Speculation(), timeout_s, CODE)


async def texts(pool: TargetPool, what: TargetCall | None = None) -> list[str]:
    return [chunk.text async for chunk in pool.generate(what or call())]


async def error_of(pool: TargetPool, what: TargetCall | None = None) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await texts(pool, what)
    return caught.value


@asynccontextmanager
async def fleet(
    *scripts: Script, route: Route | None = None, **settings: object
) -> AsyncIterator[tuple[TargetPool, list[ScriptedTarget], list[Member]]]:
    """The first script's replica is the least loaded, so it is asked first."""
    targets = [ScriptedTarget(script, name=f"target-{i}") for i, script in enumerate(scripts)]
    for target in targets:
        await target.start()
    members = [target.member(sessions=load) for load, target in enumerate(targets)]
    pool = TargetPool(GatewayConfig.model_validate(settings), lambda: Budget(1, 5.0, tuple(members)), route)
    try:
        yield pool, targets, members
    finally:
        await pool.close()
        for target in targets:
            await target.stop()


@pytest.mark.parametrize(
    "fault",
    [
        fail(grpc.StatusCode.UNAVAILABLE, "draining"),
        fail(grpc.StatusCode.INTERNAL, "engine"),
        fail(grpc.StatusCode.CANCELLED, "stopped"),
        fail(grpc.StatusCode.RESOURCE_EXHAUSTED, "full"),
        stop_short(),
        stop_short(finish(reason=pb.FINISH_REASON_ABORT)),
    ],
    ids=["unavailable", "internal", "cancelled", "full", "ends early", "aborts"],
)
async def test_a_replica_that_fails_before_its_first_chunk_is_replaced(fault: Script) -> None:
    async with fleet(fault, say("hello")) as (pool, targets, _):
        assert await texts(pool) == HELLO
        assert len(targets[0].requests) == len(targets[1].requests) == 1
        assert targets[0].requests[0].request_id != targets[1].requests[0].request_id
        assert pool.lost_attempts == 1


async def test_a_dead_address_is_replaced_and_avoided_for_a_while() -> None:
    async with fleet(say("hello"), suspect_s=60) as (pool, _, members):
        with socket.create_server(("127.0.0.1", 0)) as closing:
            dead = member("target", "dead", f"127.0.0.1:{closing.getsockname()[1]}")
        members[0] = member("target", "target-0", members[0].address, sessions=5)
        members.append(dead)
        assert await texts(pool) == HELLO
        assert await texts(pool) == HELLO
        assert pool.lost_attempts == 1


async def test_a_suspect_is_better_than_none() -> None:
    async with fleet(fail(grpc.StatusCode.UNAVAILABLE), suspect_s=60) as (pool, targets, _):
        assert (await error_of(pool)).kind is ErrorKind.UNAVAILABLE
        targets[0].script = say("hello")
        assert await texts(pool) == HELLO


async def test_attempts_are_bounded() -> None:
    faults = [fail(grpc.StatusCode.UNAVAILABLE)] * 4
    async with fleet(*faults, target_attempts=2) as (pool, targets, _):
        error = await error_of(pool)
        assert error.kind is ErrorKind.UNAVAILABLE
        assert error.retry_after_s is not None
        assert sum(len(target.requests) for target in targets) == 2


def broken(*chunks: pb.GenerateChunk) -> Script:
    """Loses its replica after these chunks."""
    return fail(grpc.StatusCode.UNAVAILABLE, after=chunks)


async def test_an_answer_that_has_begun_goes_on_at_another_replica() -> None:
    first = broken(pb.GenerateChunk(text="he", token_ids=[7, 8]), pb.GenerateChunk(text="l", token_ids=[9]))
    async with fleet(first, say("lo")) as (pool, targets, _):
        assert await texts(pool) == ["he", "l", "lo", ""]
        assert not targets[0].requests[0].progress
        (asked,) = targets[1].requests
        assert [(p.choice, list(p.token_ids)) for p in asked.progress] == [(0, [7, 8, 9])]
        assert asked.prompt_ids == targets[0].requests[0].prompt_ids
        assert asked.sampling == targets[0].requests[0].sampling
        assert (pool.lost_attempts, pool.resumes) == (1, 1)


async def test_choices_that_are_finished_are_not_computed_again() -> None:
    first = broken(pb.GenerateChunk(choice=1, token_ids=[4]), finish(1), pb.GenerateChunk(choice=2, token_ids=[5]))

    async def rest(
        request: target_pb2.TargetRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.GenerateChunk]:
        for begun in request.progress:
            yield finish(begun.choice)

    async with fleet(first, rest) as (pool, targets, _):
        chunks = [chunk async for chunk in pool.generate(call(n=3))]
        assert [c.choice for c in chunks if c.finish_reason] == [1, 0, 2]
        assert [(p.choice, list(p.token_ids)) for p in targets[1].requests[0].progress] == [(0, []), (2, [5])]


async def test_a_replica_lost_after_the_end_has_cost_nothing() -> None:
    async with fleet(broken(finish()), say("hello")) as (pool, targets, _):
        assert await texts(pool) == [""]
        assert not targets[1].requests
        assert pool.lost_attempts == 0


async def test_an_answer_that_has_begun_waits_for_a_replica_to_come_up() -> None:
    async with fleet(broken(pb.GenerateChunk(text="he", token_ids=[7])), say("llo")) as (pool, _, members):
        late = members.pop()
        asyncio.get_running_loop().call_later(0.3, members.append, late)
        assert await texts(pool) == ["he", "llo", ""]


@pytest.mark.parametrize("settings", [{"resume_wait_s": 0.1}, {}])
async def test_the_wait_ends_with_its_setting_or_the_requests_deadline(settings: dict[str, float]) -> None:
    async with fleet(broken(pb.GenerateChunk(text="he", token_ids=[7])), **settings) as (pool, _, _):
        assert (await error_of(pool, call(timeout_s=0.5))).kind is ErrorKind.UNAVAILABLE


@pytest.mark.parametrize(("other", "exactness"), [("one", "bitwise"), ("two", "ties")])
async def test_an_answer_says_whether_both_replicas_compute_alike(other: str, exactness: str) -> None:
    async with fleet(broken(pb.GenerateChunk(token_ids=[7])), say("x")) as (pool, targets, members):
        members[:] = [
            dataclasses.replace(target.member(sessions=load), numerics=numerics)
            for load, (target, numerics) in enumerate(zip(targets, ("one", other), strict=True))
        ]
        chunks = [chunk async for chunk in pool.generate(call())]
        assert chunks[-1].speculation.exactness == exactness


async def test_the_clients_mistake_is_not_retried() -> None:
    async with fleet(fail(grpc.StatusCode.INVALID_ARGUMENT, "n: 3 is too many"), say("x")) as (pool, targets, _):
        error = await error_of(pool)
        assert (error.kind, error.field) == (ErrorKind.INVALID, "n")
        assert not targets[1].requests


async def test_a_full_replica_is_asked_when_there_is_no_other() -> None:
    async with fleet(say("hello")) as (pool, targets, members):
        members[0] = targets[0].member(sessions=16, capacity=16)
        assert await texts(pool) == HELLO


async def test_no_target() -> None:
    async with fleet() as (pool, _, _):
        error = await error_of(pool)
        assert (error.kind, error.retry_after_s) == (ErrorKind.UNAVAILABLE, 1.0)


async def test_all_targets_refuse_as_full() -> None:
    full = fail(grpc.StatusCode.RESOURCE_EXHAUSTED)
    async with fleet(full, full) as (pool, _, _):
        assert (await error_of(pool)).kind is ErrorKind.OVERLOADED


async def test_own_requests_in_flight_count_before_the_reports_show_them() -> None:
    async def endless(
        request: target_pb2.TargetRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.GenerateChunk]:
        await asyncio.Event().wait()
        yield pb.GenerateChunk()

    async with fleet(endless, endless) as (pool, targets, members):
        members[:] = [target.member() for target in targets]
        running = [asyncio.create_task(texts(pool)) for _ in range(6)]
        await until(lambda: sum(len(target.requests) for target in targets) == 6)
        assert [len(target.requests) for target in targets] == [3, 3]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await asyncio.wait_for(asyncio.gather(*(target.was_cancelled.wait() for target in targets)), 10)


async def test_closing_the_stream_cancels_the_call() -> None:
    async def endless(
        request: target_pb2.TargetRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.GenerateChunk]:
        yield pb.GenerateChunk(text="x")
        await asyncio.Event().wait()

    async with fleet(endless) as (pool, targets, _):
        async with aclosing(pool.generate(call())) as stream:
            assert (await anext(stream)).text == "x"
        await asyncio.wait_for(targets[0].was_cancelled.wait(), 10)


async def test_a_replica_that_leaves_the_fleet_ends_its_streams_in_peace() -> None:
    may_go_on = asyncio.Event()

    async def patient(
        request: target_pb2.TargetRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.GenerateChunk]:
        yield pb.GenerateChunk(text="x")
        await may_go_on.wait()
        yield finish(text="y")

    async with fleet(patient, say("hello")) as (pool, _, members):
        stream = pool.generate(call())
        assert (await anext(stream)).text == "x"
        del members[0]
        assert await texts(pool) == HELLO  # a new request, which drops unused channels
        may_go_on.set()
        assert [chunk.text async for chunk in stream] == ["y"]


# The drafter.

LEASE = drafting_pb2.Lease(address="10.0.0.1:5", kind="mtp", token=b"t")
LEASED = RouteReply(kind="mtp", replica="d0", lease=LEASE.SerializeToString(), attempts=1)


class SlowTarget:
    """Waits for the lease before its first chunk, or not."""

    def __init__(self, waits: bool) -> None:
        self.target: ScriptedTarget | None = None
        self._waits = waits

    async def __call__(
        self, request: target_pb2.TargetRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.GenerateChunk]:
        if self._waits:
            assert self.target is not None
            leases: Sequence[drafting_pb2.Lease] = self.target.leases
            await until(lambda: leases)
        yield finish(text="x")


async def test_the_lease_is_attached_while_the_prompt_is_prefilled() -> None:
    asked: list[RouteRequest] = []

    async def route(request: RouteRequest) -> RouteReply:
        asked.append(request)
        return LEASED

    script = SlowTarget(waits=True)
    async with fleet(script, route=route) as (pool, targets, _):
        script.target = targets[0]
        assert await texts(pool, call(speculation=Speculation("mtp"))) == ["x"]
        assert targets[0].leases == [LEASE]
        assert asked == [RouteRequest(targets[0].requests[0].request_id, "target-0", "mtp", 1, CODE)]
        sent = targets[0].requests[0]
        assert (sent.task_class, sent.class_confidence) == ("code", 0.75)


@pytest.mark.parametrize("off", [Speculation("none"), Speculation("mtp", 0)])
async def test_no_drafter_is_asked_for_when_speculation_is_off(off: Speculation) -> None:
    async def route(request: RouteRequest) -> RouteReply:
        raise AssertionError("not to be called")

    async with fleet(say("hello"), route=route) as (pool, _, _):
        assert await texts(pool, call(speculation=off)) == HELLO
        assert pool.failed_routes == 0


async def _raises(request: RouteRequest) -> RouteReply:
    raise RuntimeError("the router is gone")


async def _hangs(request: RouteRequest) -> RouteReply:
    await asyncio.Event().wait()
    raise AssertionError


async def _garbage(request: RouteRequest) -> RouteReply:
    return RouteReply(kind="mtp", replica="d0", lease=b"\xff\xff", attempts=1)


async def _nothing(request: RouteRequest) -> RouteReply:
    return RouteReply(kind="none", replica="", lease=b"", attempts=0)


@pytest.mark.parametrize(("route", "failures"), [(_raises, 1), (_hangs, 1), (_garbage, 1), (_nothing, 0)])
async def test_a_router_that_fails_costs_only_the_drafter(route: Route, failures: int) -> None:
    async def patient(
        request: target_pb2.TargetRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.GenerateChunk]:
        yield pb.GenerateChunk(text="x")
        await asyncio.sleep(0.3)
        yield finish(text="y")

    async with fleet(patient, route=route, route_timeout_s=0.05) as (pool, targets, _):
        assert await texts(pool) == ["x", "y"]
        assert pool.failed_routes == failures
        assert not targets[0].leases


# What targets say of themselves.


async def test_info_is_remembered_while_its_replica_lives() -> None:
    async with fleet(say("x"), say("x")) as (pool, targets, members):
        assert (await pool.info()).max_context == 64
        await targets[0].stop()
        await targets[1].stop()
        assert (await pool.info()).max_context == 64
        with pytest.raises(ApiError):
            await pool.probe()
        members.clear()
        with pytest.raises(ApiError) as caught:
            await pool.info()
        assert caught.value.kind is ErrorKind.UNAVAILABLE


async def test_a_probe_passes_over_a_dead_replica() -> None:
    async with fleet(say("x"), say("x")) as (pool, targets, _):
        await targets[0].stop()
        assert (await pool.probe()).name == "tiny"


async def test_whose_request_it_is_is_told_again_where_it_goes_on() -> None:
    lost = fail(grpc.StatusCode.UNAVAILABLE, "gone", after=[pb.GenerateChunk(text="he", token_ids=[7])])
    async with fleet(lost, say("llo")) as (pool, targets, _):
        await texts(pool, dataclasses.replace(call(), tenant="someone"))
        assert [target.requests[0].tenant for target in targets] == ["someone", "someone"]
        assert targets[1].requests[0].progress


async def test_who_reads_too_slowly_is_told_and_not_served_again() -> None:
    slow = fail(grpc.StatusCode.ABORTED, "it is read too slowly", after=[pb.GenerateChunk(text="he", token_ids=[7])])
    async with fleet(slow, say("llo")) as (pool, targets, _):
        error = await error_of(pool)
        assert (error.kind, error.message) == (ErrorKind.SLOW_READER, "it is read too slowly")
        assert not targets[1].requests
