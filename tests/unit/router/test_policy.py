"""Which replica serves a request."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.dcut.messages import Member
from services.dcut.rendezvous import score
from services.requests.speculation import DrafterChoice
from services.router.policy import choose_target, drafter_kinds, rank_drafters

PREFERENCE = ("dfly", "mtp", "lookup")


def member(
    replica: str, role: str = "drafter", kind: str = "mtp", sessions: int = 0, capacity: int = 8, queue: int = 0
) -> Member:
    return Member(
        role=role,  # type: ignore[arg-type]
        replica=replica,
        address=f"{replica}:1",
        kind=kind if role == "drafter" else "",
        version="",
        node="",
        batch=0,
        queue=queue,
        sessions=sessions,
        capacity=capacity,
        pid=0,
        exactness="",
    )


def ranked(choice: DrafterChoice, members: list[Member], target: str = "t", per_target: int = 4) -> list[str]:
    return [m.replica for m in rank_drafters(choice, target, members, preference=PREFERENCE, per_target=per_target)]


@pytest.mark.parametrize(
    ("choice", "kinds"),
    [
        ("auto", ("dfly", "mtp", "lookup")),
        ("mtp", ("mtp", "dfly", "lookup")),
        ("lookup", ("lookup", "dfly", "mtp")),
        ("none", ()),
    ],
)
def test_the_asked_kind_comes_first_and_the_others_may_replace_it(
    choice: DrafterChoice, kinds: tuple[str, ...]
) -> None:
    assert drafter_kinds(choice, PREFERENCE) == kinds


def test_an_asked_kind_without_a_replica_is_replaced() -> None:
    members = [member("l", kind="lookup"), member("m", kind="mtp"), member("t", role="target")]
    assert ranked("dfly", members) == ["m", "l"]
    assert ranked("lookup", members) == ["l", "m"]
    assert ranked("none", members) == []
    assert ranked("mtp", []) == []


def test_a_full_replica_is_left_out() -> None:
    members = [member("full", sessions=8), member("free", sessions=7), member("l", kind="lookup")]
    assert ranked("mtp", members) == ["free", "l"]
    roomy = rank_drafters("mtp", "t", members, preference=PREFERENCE, per_target=4, sequences=2)
    assert [m.replica for m in roomy] == ["l"]
    pending = rank_drafters("mtp", "t", members, preference=("mtp",), per_target=4, pending={"free": 1})
    assert pending == []


def test_the_fewest_sessions_come_first_pending_ones_included() -> None:
    members = [member("a", sessions=3), member("b", sessions=1), member("c", sessions=2)]
    assert ranked("mtp", members) == ["b", "c", "a"]
    order = rank_drafters("mtp", "t", members, preference=("mtp",), per_target=4, pending={"b": 5})
    assert [m.replica for m in order] == ["c", "a", "b"]


def test_a_target_keeps_to_its_own_few_replicas() -> None:
    members = [member(f"d{i}") for i in range(20)]
    near = ranked("mtp", members, per_target=3)
    assert len(near) == 3
    # Whoever else joins or leaves, the others stay the same.
    without_another = [m for m in members if m.replica in near or m.replica < "d5"]
    assert ranked("mtp", without_another, per_target=3) == near
    # One that fills up is replaced by the next one, and nothing else moves.
    full = [member(m.replica, sessions=8 if m.replica == near[0] else 0) for m in members]
    assert set(near[1:]) < set(ranked("mtp", full, per_target=3))
    assert len(ranked("mtp", full, per_target=3)) == 3


def test_targets_spread_over_equal_replicas() -> None:
    members = [member(f"d{i}") for i in range(4)]
    first = Counter(ranked("mtp", members, target=f"t{i}")[0] for i in range(400))
    assert len(first) == 4
    assert min(first.values()) > 50


def test_the_least_loaded_target_and_a_full_one_last() -> None:
    busy, calm = member("busy", "target", sessions=5), member("calm", "target", sessions=3, queue=1)
    full = member("full", "target", sessions=2, capacity=2)
    assert choose_target("r", [busy, calm, full, member("d")]) is calm
    assert choose_target("r", [busy, calm, full], in_flight={"calm": 7}) is busy
    assert choose_target("r", [busy, calm, full], avoid={"calm"}) is busy
    assert choose_target("r", [busy, calm, full], sequences=4) is calm
    assert choose_target("r", [busy, calm, full], avoid={"busy", "calm"}) is full
    assert choose_target("r", [busy], avoid={"busy"}) is None
    assert choose_target("r", []) is None


def test_an_unknown_capacity_is_enough() -> None:
    unknown, full = member("a", "target", sessions=99, capacity=0), member("b", "target", sessions=8)
    assert choose_target("r", [full, unknown]) is unknown


def test_requests_spread_over_equal_targets() -> None:
    members = [member(f"t{i}", "target") for i in range(4)]
    chosen = Counter(m.replica for i in range(400) if (m := choose_target(f"r{i}", members)))
    assert min(chosen.values()) > 50


MEMBERS = st.lists(
    st.builds(
        member,
        st.integers(0, 10_000).map(str),
        st.sampled_from(["drafter", "target", "gateway"]),
        st.sampled_from([*PREFERENCE, "other"]),
        st.integers(0, 9),
        st.integers(0, 8),
    ),
    max_size=12,
    unique_by=lambda m: m.replica,
)


@given(MEMBERS, st.sampled_from(["auto", "mtp", "dfly", "lookup", "none"]), st.integers(1, 3), st.randoms())
def test_ranking_is_sound_and_does_not_depend_on_the_order_of_members(
    members: list[Member], choice: DrafterChoice, per_target: int, random: object
) -> None:
    order = rank_drafters(choice, "t", members, preference=PREFERENCE, per_target=per_target)
    kinds = drafter_kinds(choice, PREFERENCE)
    assert [kinds.index(m.kind) for m in order] == sorted(kinds.index(m.kind) for m in order)
    assert all(m.role == "drafter" and (m.capacity == 0 or m.sessions < m.capacity) for m in order)
    assert max(Counter(m.kind for m in order).values(), default=0) <= per_target
    shuffled = list(members)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert rank_drafters(choice, "t", shuffled, preference=PREFERENCE, per_target=per_target) == order
    # An asked kind that has room somewhere is never passed over.
    if any(m.role == "drafter" and m.kind == choice and (m.capacity == 0 or m.sessions < m.capacity) for m in members):
        assert order[0].kind == choice


def test_rendezvous_is_the_same_in_every_process() -> None:
    assert score("t", "d") == 1667384441732259429
