"""The simulator against arithmetic, and its fleet against failures."""

from __future__ import annotations

from typing import Any

import pytest

from services.simulation.config import PolicyConfig, SimulationConfig
from services.simulation.fleet import Fleet
from services.simulation.outcome import simulate

PLAIN, ADAPTIVE = PolicyConfig(name="plain"), PolicyConfig()
STATIC = PolicyConfig(name="static", kind="mtp", length=3)


def config(**settings: Any) -> SimulationConfig:
    return SimulationConfig.model_validate(
        {"seconds": 20.0, "warm_up_s": 5.0, "work": {"concurrency": 4}, **settings},
    )


def even(rate: float) -> dict[str, float]:
    return dict.fromkeys(("chat", "code", "maths"), rate)


def test_plain_decoding_takes_the_steps_that_the_table_says() -> None:
    """One sequence, one token a step of 20 ms, prompts that cost next to nothing."""
    alone = config(
        target={"steps": [{"rows": 1, "ms": 20}, {"rows": 512, "ms": 20}], "max_sequences": 1},
        work={"concurrency": 1, "answer_tokens": 100, "spread": 0},
        seconds=100.0,
    )
    outcome = simulate(alone, PLAIN)
    assert outcome.tpot_p50 == pytest.approx(20.0)
    assert outcome.tokens_per_s == pytest.approx(50.0, rel=0.02)
    assert outcome.accepted_length == 1.0


def test_static_drafts_give_what_their_acceptance_says() -> None:
    """Each token stands with probability 0.6, independently: 1 + .6 + .36 + .216 tokens a round."""
    sure = config(
        drafters=[{"kind": "mtp", "acceptance": even(0.6)}],
        work={"concurrency": 1, "variety": 1000, "answer_tokens": 400, "spread": 0},
        seconds=100.0,
    )
    outcome = simulate(sure, STATIC)
    assert outcome.accepted_length == pytest.approx(2.176, rel=0.05)


def test_the_same_seed_gives_the_same_run() -> None:
    for policy in (STATIC, ADAPTIVE):
        assert simulate(config(), policy) == simulate(config(), policy)


@pytest.mark.parametrize("concurrency", [1, 8, 24])
def test_adaptive_is_no_worse_than_plain_whatever_drafts_are_worth(concurrency: int) -> None:
    for rate in (0.02, 0.8):
        drafters = [{"kind": "mtp", "acceptance": even(rate)}]
        loaded = config(work={"concurrency": concurrency}, drafters=drafters, seconds=40.0)
        plain, adaptive = simulate(loaded, PLAIN), simulate(loaded, ADAPTIVE)
        assert adaptive.tokens_per_s >= 0.95 * plain.tokens_per_s
    assert adaptive.tokens_per_s > 1.3 * plain.tokens_per_s or concurrency > 8


def test_each_class_goes_to_the_kind_that_is_better_for_it() -> None:
    drafters = [
        {"kind": "mtp", "acceptance": {"chat": 0.7, "code": 0.1}},
        {"kind": "dfly", "acceptance": {"chat": 0.1, "code": 0.7}},
    ]
    mixed = config(drafters=drafters, work={"concurrency": 2, "mix": {"chat": 1, "code": 1}}, seconds=30.0)
    adaptive = simulate(mixed, ADAPTIVE)
    for kind in ("mtp", "dfly"):
        static = simulate(mixed, PolicyConfig.model_validate({"name": "static", "kind": kind, "length": 3}))
        assert adaptive.tokens_per_s > static.tokens_per_s


def test_no_request_is_lost_with_the_replicas_that_die() -> None:
    frail = config(
        target={"replicas": 3},
        failures={"target_every_s": 6.0, "drafter_every_s": 4.0, "restart_s": 2.0},
        seconds=60.0,
    )
    fleet = Fleet(frail, ADAPTIVE)
    fleet.run()
    assert fleet.num_deaths > 10
    assert fleet.num_resumed > 0
    numbers = [request.number for request in fleet.finished.requests]
    assert len(numbers) == len(set(numbers)), "a request ended twice"
    assert set(range(1, max(numbers) - 40)) <= set(numbers), "an old request never ended"
    assert all(request.emitted == request.answer for request in fleet.finished.requests)


def crowded(**pool: int) -> SimulationConfig:
    """One drafter, which all eight targets ask at once before they know what it costs."""
    cost = {"a": 3.0, "b": 2.0, "c": 2.0, "d": 0.5}
    return config(
        target={"replicas": 8},
        drafters=[{"kind": "mtp", "acceptance": even(0.8), "replicas": 1, "cost": cost, **pool}],
        work={"concurrency": 32},
        failures={"restart_s": 1.0},
        cluster={"fewer_after_s": 5.0},
        seconds=40.0,
        warm_up_s=20.0,
    )


def test_targets_that_were_scared_away_by_a_crowd_come_back() -> None:
    fleet = Fleet(crowded(), ADAPTIVE)
    fleet.run()
    ended = fleet.finished.since(20.0)
    assert sum(request.answer for request in ended) / sum(request.rounds for request in ended) > 1.1
    (kind,) = fleet.plan.kinds
    assert 0.2 < kind.busy < 0.95


def test_drafter_replicas_follow_the_work() -> None:
    busy = crowded(max_replicas=6, min_replicas=1)
    grown = Fleet(busy, ADAPTIVE)
    grown.run()
    assert grown.used.drafter_s / busy.seconds > 2
    idle = busy.model_copy(update={"work": busy.work.model_copy(update={"concurrency": 1})})
    small = Fleet(idle, ADAPTIVE)
    small.run()
    assert small.used.drafter_s < grown.used.drafter_s


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target": {"replicas": 1001}}, "replicas"),
        ({"drafters": [{"kind": "mtp", "acceptance": {"chat": 1.0}}]}, "acceptance: 1.0 of chat is out of range"),
        ({"work": {"mix": {"chat": 0.0}}}, "mix: it must name a class with a positive weight"),
        ({"drafter": []}, "Extra inputs"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config(**settings)
