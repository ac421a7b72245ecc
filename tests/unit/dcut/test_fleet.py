"""The fleet view against a plain model of leases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.dcut.fleet import Fleet
from services.dcut.messages import Report


def report(replica: str, lease_s: float = 2.0, batch: int = 0) -> Report:
    return Report(
        role="drafter",
        replica=replica,
        address="10.0.0.1:1",
        kind="lookup",
        version="1",
        node="n",
        lease_s=lease_s,
        batch=batch,
    )


events = st.lists(
    st.tuples(
        st.floats(0.0, 3.0),  # seconds since the event before
        st.sampled_from("abcd"),
        st.floats(0.1, 4.0),  # lease
        st.integers(0, 2),  # batch
        st.booleans(),  # expire only
    ),
    max_size=40,
)


@given(events)
def test_members_are_those_whose_lease_runs(steps: list[tuple[float, str, float, int, bool]]) -> None:
    fleet = Fleet()
    leases: dict[str, tuple[float, int]] = {}
    now = 0.0
    before = fleet.budget()
    for passed, name, lease_s, batch, only_expire in steps:
        now += passed
        if not only_expire:
            fleet.register(report(name, lease_s, batch), now)
            leases[name] = (now + lease_s, batch)
        gone = {member.replica for member in fleet.expire(now)}
        expected_gone = {name for name, (end, _) in leases.items() if end <= now}
        assert gone == expected_gone
        for name in expected_gone:
            del leases[name]

        budget = fleet.budget()
        assert {m.replica: m.batch for m in budget.members} == {name: batch for name, (_, batch) in leases.items()}
        assert [m.replica for m in budget.members] == sorted(leases)
        assert budget.version >= before.version
        if budget.members != before.members:
            assert budget.version > before.version
        before = budget


def test_the_same_report_again_changes_nothing_but_the_lease() -> None:
    fleet = Fleet()
    fleet.register(report("a"), 0.0)
    version = fleet.budget().version
    fleet.register(report("a"), 1.5)
    assert fleet.budget().version == version
    assert fleet.expire(3.0) == ()
    assert [m.replica for m in fleet.expire(3.5)] == ["a"]


def test_a_full_fleet_refuses_new_replicas_only() -> None:
    fleet = Fleet(max_members=1)
    fleet.register(report("a"), 0.0)
    with pytest.raises(ValueError, match="at most 1 members"):
        fleet.register(report("b"), 0.0)
    fleet.register(report("a", batch=7), 0.1)
    assert [m.batch for m in fleet.budget().members] == [7]


def test_versions_start_where_they_are_told() -> None:
    fleet = Fleet(first_version=1000)
    fleet.register(report("a"), 0.0)
    assert fleet.budget().version == 1001
