"""The link with an actor that is away, slow, broken, or new."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from services.dcut.fleet import Fleet
from services.dcut.link import FleetLink
from services.dcut.messages import Report, decode_report, encode

PERIOD_S = 0.01


def report() -> Report:
    return Report(role="target", replica="t1", address="a:1", kind="", version="1", node="n", lease_s=2.0)


class Actor:
    """The real fleet behind an exchange that can be made to fail."""

    def __init__(self) -> None:
        self.fleet = Fleet()
        self.fault: Callable[[], Awaitable[bytes]] | None = None
        self.settled = True
        self.num_calls = 0
        self.called = asyncio.Event()

    async def exchange(self, data: bytes) -> bytes:
        self.num_calls += 1
        self.called.set()
        if self.fault is not None:
            return await self.fault()
        now = time.monotonic()
        self.fleet.register(decode_report(data), now)
        self.fleet.expire(now)
        return encode(self.fleet.budget(self.settled))

    async def next_calls(self, count: int) -> None:
        for _ in range(count):
            self.called.clear()
            await asyncio.wait_for(self.called.wait(), 10)
        await asyncio.sleep(0)


async def raising() -> bytes:
    raise ConnectionError("the actor is away")


async def nonsense() -> bytes:
    return b"\xc1not msgpack"


async def hanging() -> bytes:
    await asyncio.sleep(3600)
    raise AssertionError("unreachable")


async def test_start_registers_at_once() -> None:
    actor = Actor()
    link = FleetLink(actor.exchange, report, PERIOD_S)
    assert link.members() == ()
    assert link.budget.version == -1
    await link.start()
    assert [m.replica for m in link.members("target")] == ["t1"]
    assert link.members("drafter") == ()
    assert link.members(kind="lookup") == ()
    await link.stop()


@pytest.mark.parametrize("fault", [raising, nonsense, hanging])
async def test_a_faulty_actor_leaves_the_last_good_view(fault: Callable[[], Awaitable[bytes]]) -> None:
    actor = Actor()
    link = FleetLink(actor.exchange, report, PERIOD_S, timeout_s=0.02)
    await link.start()
    good = link.budget
    actor.fault = fault
    await actor.next_calls(3)
    assert link.num_failures >= 2
    assert link.budget is good
    actor.fault = None
    actor.fleet.register(
        Report(role="drafter", replica="d1", address="b:1", kind="lookup", version="1", node="n", lease_s=60.0),
        time.monotonic(),
    )
    while not link.members("drafter", "lookup"):
        await actor.next_calls(1)
    await link.stop()


async def test_a_start_without_actor_succeeds() -> None:
    actor = Actor()
    actor.fault = raising
    link = FleetLink(actor.exchange, report, PERIOD_S)
    await link.start()
    assert link.members() == ()
    assert not link.is_fresh
    await link.stop()


async def test_pauses_grow_and_stay_bounded() -> None:
    link = FleetLink(Actor().exchange, report, 0.25)
    pauses = []
    for failures in (0, 1, 2, 3, 50):
        link._failures_in_a_row = failures
        pauses.append(max(link._pause_s() for _ in range(200)))
    assert pauses[0] == 0.25
    assert pauses[1] < pauses[2] < pauses[3]
    assert pauses[4] <= 2.0


async def test_an_unsettled_actor_takes_nobody_away() -> None:
    actor = Actor()
    actor.fleet.register(
        Report(role="drafter", replica="d1", address="b:1", kind="lookup", version="1", node="n", lease_s=60.0),
        time.monotonic(),
    )
    link = FleetLink(actor.exchange, report, PERIOD_S)
    await link.start()
    assert len(link.members()) == 2
    actor.fleet, actor.settled = Fleet(), False  # the actor was replaced and has not heard the drafter yet
    await actor.next_calls(2)
    assert {m.replica for m in link.members()} == {"t1", "d1"}
    actor.settled = True
    await actor.next_calls(2)
    assert {m.replica for m in link.members()} == {"t1"}
    await link.stop()


async def test_stop_says_goodbye() -> None:
    actor = Actor()
    link = FleetLink(actor.exchange, report, PERIOD_S)
    await link.start()
    await link.stop()
    actor.fleet.expire(time.monotonic() + 0.01)
    assert actor.fleet.budget().members == ()
    calls = actor.num_calls
    await asyncio.sleep(5 * PERIOD_S)
    assert actor.num_calls == calls


async def test_a_report_that_raises_does_not_end_the_link() -> None:
    actor = Actor()
    broken = False
    raised = asyncio.Event()

    def unsteady() -> Report:
        if broken:
            raised.set()
            raise RuntimeError("no load to tell")
        return report()

    link = FleetLink(actor.exchange, unsteady, PERIOD_S)
    await link.start()
    broken = True
    await asyncio.wait_for(raised.wait(), 10)
    broken = False
    await actor.next_calls(1)
    await link.stop()


async def test_stop_ends_the_link_at_the_very_moment_of_an_answer() -> None:
    actor = Actor()
    link = FleetLink(actor.exchange, report, PERIOD_S)
    await link.start()
    stopping: list[asyncio.Task[None]] = []

    async def answering_as_it_stops() -> bytes:
        # Its first step comes after the answer is there and before the link has seen it.
        asyncio.get_running_loop().call_soon(lambda: stopping.append(asyncio.create_task(link.stop())))
        actor.fault = None
        return encode(actor.fleet.budget(True))

    actor.fault = answering_as_it_stops
    await actor.next_calls(1)
    await asyncio.wait_for(asyncio.gather(*stopping), 10)
    num_calls = actor.num_calls
    await asyncio.sleep(3 * PERIOD_S)
    assert actor.num_calls == num_calls
