"""Totals that only rise, whatever is killed, lost, repeated or late."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from services.metrics.defined.gateway import FIRST_TOKEN
from services.metrics.defined.target import CALIBRATION_ERROR, DRAFTS, RUNNING
from services.metrics.messages import Counted, Snapshot, decode_counted
from services.metrics.metric import Series, Value
from services.metrics.readings import Histogram, Readings
from services.metrics.reporter import CountReporter
from services.metrics.totals import FleetTotals

SERIES = DRAFTS.series(("mtp", "chat"))


class Replica:
    """Counts drafts and, for each, one observation."""

    def __init__(self) -> None:
        self.drafts = 0
        self.waits = Histogram(FIRST_TOKEN)
        self.running = 1.0
        self.reporter = CountReporter(self.read)

    def work(self, amount: int) -> None:
        self.drafts += amount
        self.waits.observe(0.3, "chat", times=amount)

    def read(self) -> Readings:
        readings = Readings()
        readings.put(DRAFTS, self.drafts, "mtp", "chat")
        readings.put(RUNNING, self.running)
        readings.put_histogram(self.waits)
        return readings


@dataclass
class Message:
    """On its way, or lost."""

    replica: Replica
    data: bytes
    sent: dict[Series, Value]
    before: int  # drafts that the actor had confirmed
    drafts: int


class Fleet(RuleBasedStateMachine):
    """Replicas are killed, messages and answers get lost, the actor dies, a gateway hands its totals on.

    The total is exactly what has reached this actor beyond what earlier ones had confirmed, and nothing
    that has been shown is ever taken back.
    """

    @initialize()
    def start(self) -> None:
        self.replicas = [Replica(), Replica()]
        self.actor = FleetTotals("actor-0")
        self.num_actors = 1
        self.confirmed: dict[int, int] = {}  # by replica
        self.reached: dict[int, list[int]] = {}  # by replica: where this actor began, how far it got
        self.inherited = 0.0
        self.shown = Snapshot("", 0, True, {}, {})
        self.late: list[Message] = []

    def message(self, at: int) -> Message:
        replica = self.replicas[at]
        data, sent = replica.reporter.message()
        return Message(replica, data, sent, self.confirmed.get(id(replica), 0), replica.drafts)

    def arrive(self, message: Message) -> None:
        self.actor.merge(decode_counted(message.data), 0.0, 2.0)
        reached = self.reached.setdefault(id(message.replica), [message.before, message.before])
        reached[1] = max(reached[1], message.drafts)

    @rule(at=st.integers(0, 1), amount=st.integers(1, 5))
    def work(self, at: int, amount: int) -> None:
        self.replicas[at].work(amount)

    @rule(at=st.integers(0, 1), is_answered=st.booleans())
    def report(self, at: int, is_answered: bool) -> None:
        message = self.message(at)
        self.arrive(message)
        if is_answered:
            message.replica.reporter.confirm(message.sent)
            self.confirmed[id(message.replica)] = message.drafts

    @rule(at=st.integers(0, 1))
    def delay(self, at: int) -> None:
        self.late.append(self.message(at))

    @rule()
    def arrive_late(self) -> None:
        for message in self.late:
            if id(message.replica) in self.reached:  # else it would be its first, and not late
                self.arrive(message)
        self.late.clear()

    @rule(at=st.integers(0, 1))
    def kill(self, at: int) -> None:
        self.dead = [*getattr(self, "dead", ()), self.replicas[at]]  # kept: ids must not be used again
        self.replicas[at] = Replica()

    @rule()
    def look(self) -> None:
        self.shown = told(self.actor)

    @rule()
    def kill_the_actor(self) -> None:
        self.actor = FleetTotals(f"actor-{self.num_actors}")
        self.num_actors += 1
        self.late.clear()
        self.actor.restore(self.shown)
        self.inherited = total(self.shown.totals)
        self.reached.clear()

    @invariant()
    def is_exact_and_never_falls(self) -> None:
        now = told(self.actor)
        assert total(now.totals) == self.inherited + sum(last - first for first, last in self.reached.values())
        for series, value in self.shown.totals.items():
            assert all(a >= b for a, b in zip(now.totals[series], value, strict=True))
        waits = now.totals.get(FIRST_TOKEN.series(("chat",)), (0, 0))
        assert sum(waits[:-1]) == total(now.totals)  # a histogram is no less exact


TestFleet = Fleet.TestCase
TestFleet.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def total(totals: Mapping[Series, Value]) -> float:
    return totals.get(SERIES, (0,))[0]


def told(actor: FleetTotals, now: float = 0.0) -> Snapshot:
    return actor.snapshot(now, is_settled=True)


def report(replica: Replica, actor: FleetTotals, *, is_answered: bool = True, now: float = 0.0) -> None:
    message, sent = replica.reporter.message()
    actor.merge(decode_counted(message), now, 2.0)
    if is_answered:
        replica.reporter.confirm(sent)


def test_a_lost_answer_counts_once_and_a_dead_replica_still_counts() -> None:
    actor, first, second = FleetTotals("a"), Replica(), Replica()
    first.work(3)
    report(first, actor, is_answered=False)
    first.work(2)
    report(first, actor)
    report(first, actor)
    assert total(told(actor).totals) == 5
    second.work(1)
    report(second, actor)
    assert total(told(actor).totals) == 6
    reborn = Replica()  # `first` was killed
    reborn.work(1)
    report(reborn, actor)
    actor.expire(1e6)
    assert total(told(actor).totals) == 7


def test_a_late_message_takes_nothing_back() -> None:
    actor, replica = FleetTotals("a"), Replica()
    replica.work(3)
    late = replica.reporter.message()[0]
    replica.work(4)
    report(replica, actor)
    actor.merge(decode_counted(late), 0.0, 2.0)
    assert total(told(actor).totals) == 7


def test_a_new_actor_goes_on_from_the_newest_snapshot() -> None:
    old, replica = FleetTotals("old"), Replica()
    replica.work(3)
    report(replica, old)
    early = told(old)
    replica.work(4)
    report(replica, old)
    late = told(old)
    new = FleetTotals("new")
    replica.work(5)
    report(replica, new)  # before any gateway has handed anything over
    assert total(told(new).totals) == 5
    new.restore(early)
    assert total(told(new).totals) == 8
    new.restore(late)
    new.restore(early)
    new.restore(told(new))  # its own is nothing new
    assert total(told(new).totals) == 12
    assert told(new).version > late.version


def test_gauges_are_those_of_live_replicas_joined_by_their_kind() -> None:
    actor, first, second = FleetTotals("a"), Replica(), Replica()
    first.running, second.running = 2.0, 3.0
    report(first, actor, now=0.0)
    report(second, actor, now=1.5)
    error = CALIBRATION_ERROR.series(("mtp", "greedy", "stated"))
    for life, value in (("x", 0.1), ("y", 0.3)):
        actor.merge(Counted(life, {}, {error: value}), 0.0, 2.0)
    gauges = told(actor, 1.0).gauges
    assert gauges[RUNNING.series(())] == 5.0
    assert gauges[error] == pytest.approx(0.2)
    assert told(actor, 3.0).gauges == {RUNNING.series(()): 3.0}  # the others have fallen silent


def test_too_many_replicas_are_refused_and_known_ones_are_not() -> None:
    actor, first, second = FleetTotals("a", max_replicas=1), Replica(), Replica()
    report(first, actor)
    with pytest.raises(ValueError, match="at most 1 are counted"):
        report(second, actor)
    first.work(1)
    report(first, actor)
    assert total(told(actor).totals) == 1


def test_counts_that_cannot_be_read_cost_nothing_but_themselves() -> None:
    def broken() -> Readings:
        raise RuntimeError("no engine yet")

    assert CountReporter(broken).message() == (b"", {})
