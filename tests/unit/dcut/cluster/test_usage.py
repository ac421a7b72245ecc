"""Totals of many targets as one fading record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.dcut.cluster.messages import RoundCost, Use
from services.dcut.cluster.usage import MAX_KEYS, FleetUsage

FOREVER = 1e12


def use(samples: float, rounds: float, tokens: float, kind: str = "mtp", task: str = "chat") -> Use:
    return Use(
        kind, task, samples, rounds, tokens, tokens * tokens / max(rounds, 1), (rounds, rounds / 2), (rounds / 2,)
    )


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 50), st.booleans()), max_size=30))
def test_lost_and_repeated_reports_change_nothing(rounds: list[tuple[str, int, bool]]) -> None:
    """Whatever arrives, the pool is the sum of what the targets have told last."""
    usage = FleetUsage(FOREVER)
    totals, told = {"a": 0, "b": 0}, {"a": 0, "b": 0}
    for target, count, arrives in rounds:
        totals[target] += count
        if arrives:
            told[target] = totals[target]
            for _ in range(2):
                usage.add(target, [use(told[target], told[target], 2 * told[target])], [])
    expected = sum(told.values())
    pool = usage.pools.get(("mtp", "chat"))
    assert (pool.rounds if pool else 0) == pytest.approx(expected)
    assert (pool.tokens if pool else 0) == pytest.approx(2 * expected)
    assert (pool.verified if pool else (0, 0)) == pytest.approx((expected, expected / 2))


def test_a_target_that_begins_anew_is_counted_on() -> None:
    usage = FleetUsage(FOREVER)
    usage.add("a", [use(4, 100, 200)], [])
    usage.add("a", [use(1, 10, 30)], [])
    assert usage.pools["mtp", "chat"].rounds == pytest.approx(110)
    assert usage.pools["mtp", "chat"].tokens == pytest.approx(230)


def test_old_samples_fade_by_those_of_their_class_alone() -> None:
    usage = FleetUsage(memory=10)
    usage.add("a", [use(10, 100, 300)], [])
    usage.add("a", [use(10, 100, 300, task="code")], [])
    for samples in range(1, 101):
        usage.add("b", [use(samples, 10 * samples, 10 * samples)], [])
    chat, code = usage.pools["mtp", "chat"], usage.pools["mtp", "code"]
    assert chat.tokens / chat.rounds == pytest.approx(1.0, abs=0.01)
    assert code.tokens / code.rounds == pytest.approx(3.0)


def test_costs_are_those_of_the_living() -> None:
    usage = FleetUsage(FOREVER)
    usage.add("a", [], [RoundCost("mtp", 1.2), RoundCost("dfly", 1.5)])
    usage.add("b", [], [RoundCost("mtp", 1.6)])
    assert usage.plain_steps() == pytest.approx({"mtp": 1.4, "dfly": 1.5})
    usage.remove("a")
    assert usage.plain_steps() == {"mtp": 1.6}


def test_kinds_that_someone_makes_up_are_bounded() -> None:
    usage = FleetUsage(FOREVER)
    for number in range(2 * MAX_KEYS):
        usage.add("a", [use(1, 1, 1, kind=f"k{number}")], [])
    assert len(usage.pools) == MAX_KEYS
