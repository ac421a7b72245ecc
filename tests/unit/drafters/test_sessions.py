"""The session table: bounds, leases, eviction."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from services.drafters.config import SessionLimits
from services.drafters.sessions import SessionTable, TableFull, UnknownLease


def table(**limits: float) -> SessionTable:
    return SessionTable(SessionLimits.model_validate({"max_sessions": 2, "evict_idle_s": 0, **limits}))


def test_full_table_forgets_the_least_recently_used() -> None:
    sessions = table()
    first = sessions.open((1, 1), 1, b"", now=0)
    sessions.open((1, 2), 1, b"", now=1)
    assert sessions.get((1, 1), now=2) is first
    sessions.open((2, 1), 1, b"", now=3)
    assert sessions.get((1, 2), now=4) is None
    assert sessions.get((1, 1), now=4) is first
    assert sessions.take_ended() == [1]
    assert sessions.evicted == 1


def test_busy_sessions_are_not_forgotten() -> None:
    sessions = table(evict_idle_s=5)
    sessions.open((1, 1), 1, b"", now=0)
    sessions.open((1, 2), 1, b"", now=3)
    with pytest.raises(TableFull):
        sessions.open((1, 3), 1, b"", now=4)
    sessions.open((1, 3), 1, b"", now=6)
    assert sessions.get((1, 1), now=6) is None


def test_lease_holds_its_places_until_it_lapses() -> None:
    sessions = table(evict_idle_s=60, lease_ttl_s=10)
    lease = sessions.reserve(2, now=0)
    with pytest.raises(TableFull):
        sessions.open((1, 1), 1, b"", now=1)
    sessions.open((1, 1), 1, lease, now=2)
    assert (len(sessions), sessions.reserved) == (1, 1)
    with pytest.raises(UnknownLease):
        sessions.open((1, 2), 1, lease, now=10)
    assert sessions.reserved == 0
    sessions.open((1, 2), 1, b"", now=10)


def test_lease_is_used_up() -> None:
    sessions = table()
    lease = sessions.reserve(1, now=0)
    sessions.open((1, 1), 1, lease, now=0)
    with pytest.raises(UnknownLease):
        sessions.open((1, 2), 1, lease, now=0)


def test_reserving_more_than_there_is_fails_without_evicting() -> None:
    sessions = table(evict_idle_s=60)
    sessions.open((1, 1), 1, b"", now=0)
    with pytest.raises(TableFull):
        sessions.reserve(2, now=1)
    assert len(sessions) == 1


def test_idle_sessions_expire_and_streams_take_theirs_along() -> None:
    sessions = table(max_sessions=8, idle_ttl_s=10)
    for owner in ((1, 1), (1, 2), (2, 1)):
        sessions.open(owner, 1, b"", now=0)
    sessions.get((1, 2), now=5)
    sessions.get((2, 1), now=5)
    sessions.expire(now=11)
    assert sessions.take_ended() == [0]
    sessions.close_stream(1)
    assert sessions.take_ended() == [1]
    assert sessions.by_key(2) is not None


class TableMachine(RuleBasedStateMachine):
    """Whatever happens, places are bounded and every ended session is told once."""

    def __init__(self) -> None:
        super().__init__()
        minted = itertools.count()
        limits = SessionLimits(max_sessions=4, evict_idle_s=1, lease_ttl_s=5, idle_ttl_s=20)
        self.table = SessionTable(limits, lambda size: next(minted).to_bytes(size, "big"))
        self.now = 0.0
        self.leases: list[bytes] = []
        self.opened: set[int] = set()
        self.ended: set[int] = set()

    @rule(seconds=st.floats(0, 8))
    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.table.expire(self.now)

    @rule(places=st.integers(1, 3))
    def reserve(self, places: int) -> None:
        try:
            self.leases.append(self.table.reserve(places, self.now))
        except TableFull:
            return

    @rule(owner=st.tuples(st.integers(0, 1), st.integers(0, 3)), data=st.data())
    def open(self, owner: tuple[int, int], data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from([b"", b"unknown", *self.leases]))
        try:
            session = self.table.open(owner, 1, lease, self.now)
        except (TableFull, UnknownLease):
            return
        assert session.key not in self.opened
        self.opened.add(session.key)
        assert self.table.get(owner, self.now) is session

    @rule(owner=st.tuples(st.integers(0, 1), st.integers(0, 3)))
    def close(self, owner: tuple[int, int]) -> None:
        self.table.close(owner)
        assert self.table.get(owner, self.now) is None

    @invariant()
    def is_bounded(self) -> None:
        assert len(self.table) + self.table.reserved <= 4
        assert self.table.reserved >= 0

    @invariant()
    def ends_are_told_once(self) -> None:
        ended = self.table.take_ended()
        assert len(ended) == len(set(ended))
        assert not self.ended & set(ended)
        self.ended |= set(ended)
        assert len(self.opened - self.ended) == len(self.table)


TestTableMachine = TableMachine.TestCase
TestTableMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
