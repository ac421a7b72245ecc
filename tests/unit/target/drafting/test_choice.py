from __future__ import annotations

import pytest

from services.dcut.rendezvous import subset
from services.requests.speculation import Speculation, as_drafter_choice
from services.target.drafting.choice import Candidate, choose, preference
from services.target.drafting.waits import AskedFrame, WaitTracker

KINDS = ("mtp", "dfly", "lookup")
ALL = [Candidate("a", "lookup"), Candidate("b", "mtp"), Candidate("c", "mtp"), Candidate("d", "dfly")]


@pytest.mark.parametrize(
    ("drafter", "limit", "leased", "expected"),
    [
        ("auto", None, "", KINDS),
        ("auto", None, "dfly", ("dfly", "mtp", "lookup")),
        ("lookup", None, "", ("lookup", "mtp", "dfly")),
        ("lookup", None, "dfly", ("dfly", "lookup", "mtp")),  # the router replaced what was asked for
        ("auto", None, "new", ("new", *KINDS)),
        ("none", None, "mtp", ()),
        ("mtp", 0, "mtp", ()),
    ],
)
def test_preference(drafter: str, limit: int | None, leased: str, expected: tuple[str, ...]) -> None:
    assert preference(Speculation(as_drafter_choice(drafter), limit), leased, KINDS) == expected


def test_the_best_kind_wins_over_everything() -> None:
    chosen = choose(ALL, KINDS, "s", current="d", leased="a")
    assert chosen is not None
    assert chosen.kind == "mtp"


def test_within_a_kind_the_current_one_stays_then_the_leased_one() -> None:
    assert choose(ALL, KINDS, "s", current="b", leased="c") == Candidate("b", "mtp")
    assert choose(ALL, KINDS, "s", current="c", leased="b") == Candidate("c", "mtp")
    assert choose(ALL, KINDS, "s", current="d", leased="c") == Candidate("c", "mtp")


def test_sequences_spread_over_a_kind() -> None:
    chosen = {choose(ALL, KINDS, str(number), "", "") for number in range(64)}
    assert chosen == {Candidate("b", "mtp"), Candidate("c", "mtp")}


def test_unknown_kinds_are_not_used() -> None:
    assert choose([Candidate("x", "new")], KINDS, "s", "", "") is None


def test_the_subset_changes_by_one_when_one_leaves() -> None:
    replicas = [f"replica-{number}" for number in range(50)]
    before = subset("target", replicas, 4)
    after = subset("target", [r for r in replicas if r != before[1]], 4)
    assert [r for r in after if r in before] == [before[0], *before[2:]]


def test_the_allowance_follows_the_waits_within_bounds() -> None:
    waits = WaitTracker(min_s=0.002, max_s=0.05)
    assert waits.allowance_s == 0.05
    for frame in range(1, 200):
        waits.asked(frame, count=3, now=frame)
        waits.answered(frame, arrived=frame + 0.010)
    assert 0.010 <= waits.allowance_s < 0.015
    for frame in range(200, 400):
        waits.asked(frame, count=3, now=frame)
        waits.answered(frame, arrived=frame + 0.0001)
    assert waits.allowance_s == 0.002
    for frame in range(400, 500):
        waits.asked(frame, count=3, now=frame)
        waits.answered(frame, arrived=frame + 0.3)
    assert waits.allowance_s == 0.05


def test_an_answer_tells_what_its_frame_had_asked() -> None:
    waits = WaitTracker(0.002, 0.05)
    for count in (3, 7, 5):
        waits.asked(1, count, 1.0)
    waits.asked(2, 4, 2.0)
    answered = waits.answered(1, 3.0)
    assert answered == AskedFrame(sent=1.0, sequences=3, longest=7)
    assert waits.answered(1, 3.0) is None
    assert waits.answered(2, 3.0) == AskedFrame(2.0, 1, 4)


def test_silence_counts_from_the_oldest_unanswered_ask() -> None:
    waits = WaitTracker(0.002, 0.05)
    assert waits.silence_s(5.0) == 0
    waits.asked(1, 3, 1.0)
    waits.asked(2, 3, 2.0)
    waits.asked(3, 3, 3.0)
    assert waits.silence_s(5.0) == 4.0
    waits.answered(2, 5.0)
    assert waits.silence_s(5.0) == 2.0, "frame 1 will get no answer any more"
    waits.answered(99, 5.0)
    assert waits.silence_s(5.0) == 2.0, "an answer to nothing changes nothing"
    waits.forget()
    assert waits.silence_s(9.0) == 0
