"""Lengths, prices, admission and replicas, each against a fleet that the test plays."""

from __future__ import annotations

import itertools

import pytest

from services.dcut.cluster.config import ClusterConfig
from services.dcut.cluster.lengths import conditional, worthwhile
from services.dcut.cluster.messages import Use
from services.dcut.cluster.planner import Planner
from services.dcut.cluster.replicas import Demand
from services.dcut.cluster.shortage import Shortage
from services.dcut.messages import Report
from services.requests.speculation import MAX_DRAFT_TOKENS

CONFIG = ClusterConfig()
GAINS = {"chat": 0.4, "code": 0.9, "maths": 0.6}


def standing(rate: float, rounds: float = 1000, positions: int = 7) -> Use:
    """Drafts of which each token stands with that probability, given those before."""
    reached = [rounds * rate**position for position in range(positions + 1)]
    return Use("mtp", "chat", 10, rounds, 2 * rounds, 4 * rounds, tuple(reached[:-1]), tuple(reached[1:]))


def test_acceptance_by_position() -> None:
    assert conditional(standing(0.5)) == pytest.approx((0.5,) * 7)
    assert conditional(Use("mtp", "chat", 1, 1, 1, 1, (), ())) == ()
    seldom = Use("mtp", "chat", 1, 100, 150, 9, (100.0, 1.0), (60.0, 1.0))
    assert conditional(seldom)[1] == pytest.approx((1 + 4 * 0.6) / 5)  # one lucky draft says little


@pytest.mark.parametrize(("rate", "length"), [(0.2, 2), (0.45, 4), (0.7, 9), (0.95, MAX_DRAFT_TOKENS), (0.0, 2)])
def test_positions_that_hardly_ever_stand_are_not_asked_for(rate: float, length: int) -> None:
    assert worthwhile(standing(rate), before=0) == length


def test_nothing_is_limited_by_a_few_unlucky_rounds() -> None:
    assert worthwhile(standing(0.1, rounds=20), before=0) == MAX_DRAFT_TOKENS


def test_a_length_does_not_flicker() -> None:
    """The rate goes to and fro about an edge."""
    length, changes = 0, 0
    for rate in itertools.islice(itertools.cycle((0.440, 0.455)), 50):
        now = worthwhile(standing(rate), length)
        changes += length not in (0, now)
        length = now
    assert changes <= 1


def run(shortage: Shortage, busy: float, seconds: float) -> None:
    for _ in range(int(seconds / 0.1)):
        shortage.observe(busy, 0.1, GAINS, CONFIG)


def test_a_shortage_raises_the_price_then_turns_away_the_class_that_gains_least() -> None:
    shortage = Shortage()
    run(shortage, 0.5, 10)
    assert shortage.price_s == 0.0
    run(shortage, 1.0, 5)
    assert 0 < shortage.price_s < CONFIG.max_price_s
    assert shortage.turned_away == []
    run(shortage, 1.0, 20)
    assert shortage.turned_away == ["chat", "maths"]  # and never the last one
    run(shortage, 0.75, 60)
    assert shortage.turned_away == ["chat", "maths"]  # within the band nothing moves
    run(shortage, 0.3, 2)
    assert shortage.turned_away == ["chat"]  # the one that gains more is back first
    assert shortage.price_s == CONFIG.max_price_s
    run(shortage, 0.3, 30)
    assert shortage.turned_away == []
    assert shortage.price_s == 0.0


def test_a_price_finds_its_level_and_stays() -> None:
    """Drafters that are as busy as the price lets them be: no cliff, no swinging between all and nothing."""
    shortage, busy = Shortage(), []
    for _ in range(3000):
        offered = 2.0 / (1 + shortage.price_s / 0.0005)
        shortage.observe(min(offered, 1.0), 0.1, GAINS, CONFIG)
        busy.append(offered)
    assert shortage.turned_away == []
    assert CONFIG.busy_low <= busy[-1] <= CONFIG.busy_high + 0.01
    assert max(busy[-500:]) - min(busy[-500:]) < 0.25


def test_wanted_replicas_rise_at_once_and_fall_late() -> None:
    demand = Demand()

    def observe(replicas: int, busy: float, *, is_short: bool = False, unserved: int = 0, seconds: float = 0.1) -> int:
        demand.observe(replicas, busy, is_short, unserved, seconds, CONFIG)
        return demand.wanted

    assert observe(0, 0.0) == 0
    assert observe(0, 0.0, unserved=3) == 1  # back from nothing
    assert observe(1, 0.5) == 1
    assert observe(1, 0.9) == 2
    assert observe(2, 0.9, is_short=True) == 3
    assert observe(3, 0.25, seconds=CONFIG.fewer_after_s - 1) == 3
    assert observe(3, 0.35, seconds=0.5) == 3
    assert observe(3, 0.25, seconds=1) == 2  # the most that was called for in that time
    assert observe(2, 0.0, seconds=CONFIG.fewer_after_s) == 0


def test_a_plan_forgets_those_who_left_and_keeps_what_they_taught() -> None:
    planner = Planner(CONFIG)
    base = {"address": "a:1", "version": "1", "node": "n", "lease_s": 2.0}
    planner.observe(Report(role="target", replica="t", kind="", uses=(standing(0.5),), **base))
    planner.observe(Report(role="drafter", replica="d", kind="mtp", busy=0.5, **base))
    planner.observe(Report(role="router", replica="r", kind="", unserved=("dfly",), **base))
    plan = planner.plan(0.0)
    assert {kind.kind: (kind.replicas, kind.wanted) for kind in plan.kinds} == {"mtp": (1, 0), "dfly": (0, 1)}
    planner.remove("d")
    planner.remove("t")
    plan = planner.plan(0.1)
    assert [kind.replicas for kind in plan.kinds] == [0, 0]
    (guidance,) = plan.guidance
    assert (guidance.kind, guidance.task_class, guidance.max_draft, guidance.is_admitted) == ("mtp", "chat", 4, True)
    assert guidance.acceptance == pytest.approx((0.5,) * 7)
