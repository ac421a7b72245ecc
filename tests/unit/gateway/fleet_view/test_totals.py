"""A gateway's copy of the totals: never less than it has shown, whatever becomes of the actor."""

from __future__ import annotations

import asyncio

from services.gateway.fleet_view.totals import FleetTotalsView
from services.metrics.defined.target import STEPS
from services.metrics.messages import Counted, Snapshot, decode_snapshot, encode_snapshot
from services.metrics.totals import FleetTotals
from tests.unit.gateway.conftest import until

SERIES = STEPS.series(())


class Actor:
    """The real sums behind calls that can fail."""

    def __init__(self, name: str, *, is_settled: bool = True) -> None:
        self.totals = FleetTotals(name)
        self.is_settled = is_settled
        self.is_away = False
        self.num_reads = 0
        self.answering = asyncio.Event()
        self.answering.set()
        self._steps = 0

    def work(self, steps: int) -> None:
        before, self._steps = self._steps, self._steps + steps
        self.totals.merge(Counted("life", {SERIES: ((before,), (self._steps,))}, {}), 0.0, 1e9)

    def snapshot(self) -> Snapshot:
        return self.totals.snapshot(0.0, is_settled=self.is_settled)


class Way:
    """To whichever actor there is."""

    def __init__(self, actor: Actor) -> None:
        self.actor = actor

    async def read(self, wait_s: float) -> bytes:
        if self.actor.is_away:
            raise ConnectionError("the actor is away")
        self.actor.num_reads += 1
        await self.actor.answering.wait()
        return encode_snapshot(self.actor.snapshot())

    async def restore(self, data: bytes) -> None:
        self.actor.totals.restore(decode_snapshot(data))


def view_of(way: Way) -> FleetTotalsView:
    return FleetTotalsView(way.read, way.restore, wait_s=1.0, period_s=60.0)


async def steps(view: FleetTotalsView) -> float:
    snapshot, _ = await view.look()
    return snapshot.totals.get(SERIES, (0,))[0]


async def test_while_the_actor_is_away_the_last_totals_stand_and_age() -> None:
    way = Way(Actor("a"))
    view = view_of(way)
    way.actor.work(5)
    assert await steps(view) == 5
    _, young = await view.look()
    way.actor.is_away = True
    await asyncio.sleep(0.02)
    snapshot, old = await view.look()
    assert snapshot.totals[SERIES] == (5,)
    assert old > young


async def test_a_new_actor_goes_on_where_the_old_one_was_and_is_believed_once_it_has_heard_everyone() -> None:
    way = Way(Actor("old"))
    view = view_of(way)
    way.actor.work(5)
    assert await steps(view) == 5
    way.actor = Actor("new", is_settled=False)
    way.actor.work(2)
    assert await steps(view) == 5
    way.actor.work(1)
    way.actor.is_settled = True
    assert await steps(view) == 8
    way.actor.work(1)
    assert await steps(view) == 9


async def test_two_gateways_agree_after_the_actor_was_replaced() -> None:
    way = Way(Actor("old"))
    early, late = view_of(way), view_of(way)
    way.actor.work(5)
    assert await steps(early) == 5
    way.actor.work(2)
    assert await steps(late) == 7
    way.actor = Actor("new", is_settled=False)
    way.actor.work(1)
    assert await steps(early) == 5
    assert await steps(late) == 7
    way.actor.is_settled = True
    assert await steps(early) == 8
    assert await steps(late) == 8


async def test_a_gateway_that_knows_nothing_yet_takes_what_there_is() -> None:
    way = Way(Actor("a", is_settled=False))
    way.actor.work(4)
    assert await steps(view_of(way)) == 4


async def test_many_looks_at_once_share_a_reading_that_began_after_them() -> None:
    way = Way(Actor("a"))
    view = view_of(way)
    way.actor.answering.clear()
    looks = [asyncio.create_task(steps(view)) for _ in range(20)]
    await asyncio.sleep(0.02)
    way.actor.work(3)
    way.actor.answering.set()
    assert await asyncio.gather(*looks) == [3] * 20
    assert way.actor.num_reads == 2


async def test_it_reads_by_itself_and_stops() -> None:
    way = Way(Actor("a"))
    view = FleetTotalsView(way.read, way.restore, wait_s=1.0, period_s=0.01)
    view.start()
    await until(lambda: way.actor.num_reads >= 3)
    await view.stop()
    seen = way.actor.num_reads
    await asyncio.sleep(0.05)
    assert way.actor.num_reads == seen
