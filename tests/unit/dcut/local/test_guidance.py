"""What a target tells the fleet of its drafts, and what it makes of the answer."""

from __future__ import annotations

import dataclasses
import random

import pytest

from services.dcut.cluster.messages import Guidance, KindBudget
from services.dcut.cluster.usage import FleetUsage
from services.dcut.local.guide import guide_of
from services.dcut.local.messages import Candidate, Offer
from services.dcut.local.rechoice import Promise, better_kind
from services.dcut.messages import Budget
from tests.unit.dcut.local.test_dcut import CHEAP_ROWS, World, exact, load

BOTH = ("mtp", "dfly")


def guidance(kind: str, tokens: float, max_draft: int = 16, *, is_admitted: bool = True, rate: float = 0.5) -> Guidance:
    return Guidance(kind, "chat", 100, 1000, 1000 * tokens, 1000 * tokens**2, (rate,), max_draft, is_admitted)


def budget(*entries: Guidance, price_s: float = 0.0) -> Budget:
    kinds = tuple(KindBudget(kind, 1, 1, 0.5, price_s, 1.2) for kind in BOTH)
    return Budget(1, 5.0, (), kinds=kinds, guidance=entries)


def emit(world: World, rounds: int) -> None:
    for _ in range(rounds):
        _, kept = world.step()
        for sequence in range(world.batch):
            world.dcut.observe_round(sequence, 2 if kept[sequence] else 1)


def test_what_is_told_of_rounds_adds_up() -> None:
    world = World(exact(CHEAP_ROWS), lambda sequence: 0.8, batch=3)
    emit(world, 100)
    for sequence in range(3):
        world.dcut.close(sequence)
    (use,) = world.dcut.lessons.tally.uses()
    assert (use.kind, use.task_class) == ("mtp", "chat")
    assert use.rounds == 300
    assert 1.5 < use.tokens / use.rounds <= 2
    assert use.samples == 3 * 4  # 32 rounds each, and the rest
    assert use.accepted[0] / use.verified[0] == pytest.approx(0.8, abs=0.1)
    (cost,) = world.dcut.round_costs
    assert cost.kind == "mtp"
    assert 1.0 < cost.plain_steps < 2.0
    usage = FleetUsage(200)
    usage.add("t", [use], [cost])
    assert usage.pools["mtp", "chat"].rounds == 300


def test_rounds_that_say_nothing_of_the_drafter_do_not_count() -> None:
    dcut = exact(CHEAP_ROWS)
    dcut.open(1, "chat", is_greedy=True)
    sources = [Candidate(1, "mtp", False, 5), Candidate(1, "lookup", True, 5), Candidate(1, "mtp", False, 0)]
    for source in sources:
        dcut.ask([source], load(1))
        dcut.keep([Offer(1, ())], load(1))
        dcut.observe_round(1, 1)
    dcut.close(1)
    assert [(use.kind, use.rounds) for use in dcut.lessons.tally.uses()] == [("mtp", 1)]


def test_a_new_target_starts_from_what_the_fleet_knows() -> None:
    """Told that drafts hardly ever stand, it asks for none but probes; left alone it tries first."""
    told, alone = exact(CHEAP_ROWS), exact(CHEAP_ROWS)
    told.follow(guide_of(budget(guidance("mtp", 1.0, rate=0.001))))
    asked = []
    for dcut in (told, alone):
        dcut.open(0, "chat", is_greedy=True)
        asked.append(dcut.ask([Candidate(0, "mtp", False, 5)], load(1)))
    assert asked[0] == []
    assert asked[1] != []


def test_a_price_sends_the_least_useful_drafts_away_first() -> None:
    world = World(exact(CHEAP_ROWS), lambda sequence: 0.9 if sequence < 2 else 0.3, batch=4)
    for _ in range(60):
        world.step()
    free = sum(len(world.step()[0]) for _ in range(20))
    world.dcut.follow(guide_of(budget(price_s=0.0006)))
    rounds = [world.step()[0] for _ in range(40)][20:]
    dear = sum(len(asked) for asked in rounds)
    assert dear < free
    good = sum(sequence < 2 for asked in rounds for sequence in asked)
    assert good > dear - good


def test_limits_and_admission_reach_the_target() -> None:
    dcut = exact(CHEAP_ROWS)
    dcut.open(0, "chat", is_greedy=True)
    dcut.follow(guide_of(budget(guidance("mtp", 1.5, 3), guidance("dfly", 1.5, is_admitted=False))))
    assert (dcut.limit(0, "mtp"), dcut.limit(0, "dfly"), dcut.limit(0, "lookup")) == (3, 0, 16)


@pytest.mark.parametrize(
    ("rounds", "tokens", "expected"),
    [
        (30, 60, None),  # as good as its class with mtp
        (30, 40, "dfly"),  # far below it
        (300, 305, None),  # next to nothing stands here: it will be no better elsewhere, and mtp's rounds are cheaper
    ],
)
def test_a_request_moves_on_when_its_own_record_contradicts_the_choice(
    rounds: int, tokens: int, expected: str | None
) -> None:
    promises = {"mtp": Promise(2.0, 1.2), "dfly": Promise(2.4, 1.4)}
    assert better_kind("mtp", rounds, tokens, promises, BOTH) == expected
    assert better_kind("mtp", rounds, tokens, promises, ["mtp"]) is None  # nowhere to go
    assert better_kind("mtp", 10, 10, promises, BOTH) is None  # too early
    assert better_kind("lookup", rounds, tokens, promises, BOTH) is None  # nothing to compare with


def test_the_better_kind_by_the_fleets_record_and_the_requests_own() -> None:
    dcut = exact(CHEAP_ROWS)
    dcut.open(0, "chat", is_greedy=True)
    dcut.follow(guide_of(budget(guidance("mtp", 1.5), guidance("dfly", 2.4))))
    rng = random.Random(0)
    for _ in range(40):
        dcut.ask([Candidate(0, "mtp", False, 3)], load(1))
        dcut.keep([Offer(0, ())], load(1))
        dcut.observe_round(0, 1 + (rng.random() < 0.5))
    assert dcut.better_kind(0, BOTH) == "dfly"
    dcut.follow(dataclasses.replace(guide_of(budget())))
    assert dcut.better_kind(0, BOTH) is None
