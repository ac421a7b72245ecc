"""A flood of one tenant's does not starve another, whatever either asks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.target.fairness import FairShare, WaitingLine
from services.target.model.spec import BLOCK
from services.target.scheduler import Scheduler
from services.target.sequence import Sequence
from tests.unit.target.test_scheduler import make_scheduler, make_sequence, plan, shape, step


def of(tenant: str, number: int, prompt: list[int], max_tokens: int = 10) -> Sequence:
    sequence = make_sequence(number, prompt, max_tokens)
    sequence.request = replace(sequence.request, tenant=tenant)
    return sequence


def test_who_has_had_least_is_next() -> None:
    share = FairShare()
    line = WaitingLine(share)
    for number, tenant in enumerate("aabb"):
        share.enter(tenant)
        line.append(of(tenant, number, [1]))
    order = []
    while line:
        head = line.head
        order.append(head.id)
        line.remove(head)
        share.charge(head.tenant, 10 if head.tenant == "a" else 4)
    assert order == [0, 2, 3, 1]


def test_time_away_earns_no_credit_and_a_debt_is_kept() -> None:
    share = FairShare()
    share.enter("a")
    share.charge("a", 100)
    share.enter("new")
    assert share.served("new") == 100
    share.charge("new", 50)
    share.leave("new")
    share.charge("a", 10)
    share.enter("new")
    assert (share.served("new"), share.served("a")) == (150, 110)


def test_tenants_that_are_gone_are_forgotten_at_last() -> None:
    share = FairShare()
    share.enter("here")
    for number in range(5000):
        share.enter(str(number))
        share.leave(str(number))
    assert len(share._served) <= 4097
    assert share.served("here") == 0


@settings(max_examples=60, deadline=None)
@given(
    flood=st.integers(1, 30),
    flood_prompt=st.integers(1, 200),
    flood_tokens=st.integers(1, 200),
    mine=st.integers(1, 60),
    max_rows=st.integers(8, 64),
    max_sequences=st.integers(2, 8),
    head_start=st.integers(0, 30),
)
def test_a_flood_delays_another_tenant_by_a_few_steps_at_most(
    flood: int, flood_prompt: int, flood_tokens: int, mine: int, max_rows: int, max_sequences: int, head_start: int
) -> None:
    """However much is before it, and however long that runs, a newcomer's prompt is computed as if it were alone
    with one competitor: half of the rows that decoding leaves."""
    scheduler = make_scheduler(num_blocks=400, max_sequences=max_sequences, max_rows=max_rows)
    for number in range(flood):
        scheduler.add(of("flood", number, [number, *range(flood_prompt - 1)], flood_tokens))
    for _ in range(head_start):
        _run_step(scheduler)
    newcomer = of("me", 99, list(range(1000, 1000 + mine)))
    scheduler.add(newcomer)
    rows = max(max_rows - max_sequences, 1)
    for _ in range(4 + 4 * -(-mine // rows)):
        _run_step(scheduler)
        if newcomer.num_output:
            return
    raise AssertionError(f"{newcomer.num_computed} of {mine} rows were computed")


def _run_step(scheduler: Scheduler) -> None:
    step(scheduler)
    for sequence in list(scheduler.running):
        assert sequence.request.sampling.max_tokens is not None
        if sequence.num_output >= sequence.request.sampling.max_tokens:
            scheduler.remove(sequence)


@settings(max_examples=60, deadline=None)
@given(
    asks=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 90), st.integers(1, 40), st.integers(0, 3)),
        min_size=1,
        max_size=24,
    ),
    num_blocks=st.integers(8, 40),
)
def test_everything_ends_and_nothing_is_lost(asks: list[tuple[str, int, int, int]], num_blocks: int) -> None:
    """Preempting for others' sake never goes in circles."""
    scheduler = make_scheduler(num_blocks=num_blocks, max_sequences=3, max_rows=32)
    sequences = []
    for number, (tenant, prompt, tokens, pause) in enumerate(asks):
        sequences.append(of(tenant, number, [number] * prompt, tokens))
        scheduler.add(sequences[-1])
        for _ in range(pause):
            _run_step(scheduler)
    for _ in range(40 * sum(1 + prompt // 16 + tokens for _, prompt, tokens, _ in asks)):
        if not scheduler.running and not scheduler.waiting:
            break
        _run_step(scheduler)
    assert [s.num_output for s in sequences] == [tokens for _, _, tokens, _ in asks]
    assert scheduler.blocks.num_free == num_blocks
    assert not scheduler.share._present


def test_two_busy_tenants_get_the_same() -> None:
    """One asks much at a time and the other little; both always have more."""
    scheduler, number = make_scheduler(num_blocks=200, max_sequences=4, max_rows=32), 0
    served = {"a": 0, "b": 0}
    for _ in range(600):
        for tenant, prompt, tokens in (("a", 100, 60), ("b", 5, 3)):
            while sum(s.tenant == tenant for s in [*scheduler.running, *scheduler.waiting]) < 6:
                number += 1
                scheduler.add(of(tenant, number, [number] * prompt, tokens))
        before = {s.id: s.num_charged for s in [*scheduler.running, *scheduler.waiting]}
        for work in plan(scheduler):
            scheduler.commit(work, [1] if work.reaches_end else [], 0)
            served[work.sequence.tenant] += work.sequence.num_charged - before[work.sequence.id]
        for sequence in list(scheduler.running):
            if sequence.num_output >= (sequence.request.sampling.max_tokens or 0):
                scheduler.remove(sequence)
    assert served["a"] + served["b"] > 5000
    assert abs(served["a"] - served["b"]) < 400


def test_a_long_prompt_starves_neither_decoding_nor_anothers_short_prompt() -> None:
    scheduler = make_scheduler(num_blocks=400, max_rows=16)
    decoding = of("a", 1, [1, 2, 3], max_tokens=99)
    scheduler.add(decoding)
    step(scheduler)
    scheduler.add(of("b", 2, list(range(2000))))
    for _ in range(10):
        assert shape(step(scheduler)) == [(1, 1, 0), (2, 15, 0)]
    scheduler.add(of("c", 3, [7, 8, 9]))
    step(scheduler)
    assert scheduler.running[-1].id == 3
    assert scheduler.running[-1].num_output == 1
    assert decoding.num_output == 12


def test_a_tenant_with_every_place_gives_some_up_and_goes_on_later() -> None:
    scheduler = make_scheduler(max_sequences=4, max_rows=256)
    for number in range(6):
        scheduler.add(of("a", number, [number] * 40, max_tokens=99))
    step(scheduler)
    assert [s.id for s in scheduler.running] == [0, 1, 2, 3]
    for number in (10, 11, 12):
        scheduler.add(of("b", number, [number] * 40, max_tokens=99))
    for _ in range(3):
        step(scheduler)
    assert [s.id for s in scheduler.running] == [0, 1, 2, 10]
    # A second place when the prompt of the first has been evened out.
    for _ in range(40):
        step(scheduler)
    assert [s.id for s in scheduler.running] == [0, 1, 10, 11]
    for _ in range(40):
        step(scheduler)
    assert [s.id for s in scheduler.running] == [0, 1, 10, 11]
    assert scheduler.num_preemptions == 2
    for sequence in list(scheduler.running):
        scheduler.remove(sequence)
    step(scheduler)
    assert {s.id for s in scheduler.running} == {2, 3, 4, 12}


def test_a_preempted_sequence_does_not_pay_twice() -> None:
    scheduler = make_scheduler(max_sequences=1, cache=False)
    first = of("a", 1, [1] * 40, max_tokens=99)
    scheduler.add(first)
    step(scheduler)
    charged = scheduler.share.served("a")
    scheduler._preempt(first)
    step(scheduler)
    assert first.num_computed == 41
    assert scheduler.share.served("a") == charged + 1


@pytest.mark.parametrize(("second", "cached"), [("a", 2 * BLOCK), ("b", 0), ("", 0)])
def test_a_prefix_is_found_by_its_own_tenant_alone(second: str, cached: int) -> None:
    scheduler = make_scheduler()
    scheduler.add(of("a", 1, list(range(40))))
    step(scheduler)
    again = of(second, 2, list(range(40)))
    scheduler.add(again)
    step(scheduler)
    assert again.num_cached == cached


def test_a_prefix_stays_apart_through_preemption_and_output() -> None:
    """Blocks of answers, and those of a sequence that is computed anew, have the same owner."""
    scheduler = make_scheduler(num_blocks=20)
    first = of("a", 1, list(range(20)), max_tokens=99)
    scheduler.add(first)
    for _ in range(30):
        step(scheduler)
    tokens = list(first.tokens)
    scheduler._preempt(first)
    step(scheduler)
    assert first.num_computed >= 3 * BLOCK
    step(scheduler)
    scheduler.remove(first)
    for tenant, found in (("b", 0), ("", 0), ("a", len(tokens) // BLOCK * BLOCK)):
        other = of(tenant, 5, [*tokens, 5])
        scheduler.add(other)
        step(scheduler)
        assert other.num_cached == found, tenant
        scheduler.remove(other)
