from __future__ import annotations

import random
from collections.abc import Collection

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from services.requests.sampling import SamplingParams
from services.requests.speculation import Speculation
from services.target.kv.blocks import BlockManager
from services.target.model.spec import BLOCK
from services.target.sampling.pipeline import SamplingState
from services.target.scheduler import Scheduler, Work
from services.target.sequence import Request, Sequence
from services.target.text import Detokenizer, StopScanner

_TOKENIZER = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE({"a": 0}, [])))


def make_sequence(number: int, prompt: list[int], max_tokens: int = 10, **sampling: object) -> Sequence:
    params = SamplingParams(seed=0, max_tokens=max_tokens, **sampling)  # type: ignore[arg-type]
    request = Request(f"r{number}", tuple(prompt), params, Speculation(), lambda emission: None)
    state = SamplingState(params, 0, frozenset(), ())
    return Sequence(
        number, request, 0, list(prompt), state, Detokenizer(_TOKENIZER, ()), StopScanner((), include_stop=False)
    )


def make_scheduler(num_blocks: int = 64, max_sequences: int = 8, max_rows: int = 64, cache: bool = True) -> Scheduler:
    return Scheduler(BlockManager(num_blocks, prefix_cache=cache), max_sequences, max_rows)


def plan(scheduler: Scheduler, drafts: dict[int, list[int]] | None = None, pending: Collection[int] = ()) -> list[Work]:
    return scheduler.plan(lambda s: s.id in pending, lambda s: (drafts or {}).get(s.id, []))


def step(scheduler: Scheduler, drafts: dict[int, list[int]] | None = None, token: int = 1) -> list[Work]:
    """Plans, and commits one token wherever a row chooses one."""
    works = plan(scheduler, drafts)
    for work in works:
        scheduler.commit(work, [token] if work.reaches_end else [], 0)
    return works


def shape(works: list[Work]) -> list[tuple[int, int, int]]:
    return [(work.sequence.id, work.count, len(work.drafts)) for work in works]


def test_a_long_prompt_is_computed_in_chunks_beside_decoding() -> None:
    scheduler = make_scheduler(max_rows=16)
    scheduler.add(make_sequence(1, [1, 2, 3]))
    assert shape(step(scheduler)) == [(1, 3, 0)]
    scheduler.add(make_sequence(2, list(range(40))))
    assert shape(step(scheduler)) == [(1, 1, 0), (2, 15, 0)]
    assert shape(step(scheduler, {1: [7, 7]})) == [(1, 1, 2), (2, 13, 0)]
    works = plan(scheduler)
    assert shape(works) == [(1, 1, 0), (2, 12, 0)]
    assert [work.reaches_end for work in works] == [True, True]


def test_drafts_stop_where_the_answer_or_the_step_ends() -> None:
    scheduler = make_scheduler(max_rows=5)
    scheduler.add(make_sequence(1, [1, 2], max_tokens=4))
    scheduler.add(make_sequence(2, [1, 2], max_tokens=99))
    step(scheduler)
    # One of four tokens is out: two drafts and the bonus token make four.
    assert shape(plan(scheduler, {1: [7] * 9, 2: [8] * 9})) == [(1, 1, 2), (2, 1, 1)]


def test_who_waits_for_a_draft_sits_out() -> None:
    scheduler = make_scheduler()
    for number in (1, 2):
        scheduler.add(make_sequence(number, [1]))
    step(scheduler)
    assert shape(plan(scheduler, pending={1})) == [(2, 1, 0)]


def test_admission_is_first_come_first_served_even_if_a_later_one_would_fit() -> None:
    scheduler = make_scheduler(num_blocks=4)
    scheduler.add(make_sequence(1, list(range(40))))
    scheduler.add(make_sequence(2, list(range(100, 140))))
    scheduler.add(make_sequence(3, [5]))
    assert shape(plan(scheduler)) == [(1, 40, 0)]
    assert [s.id for s in scheduler.waiting] == [2, 3]


def test_max_sequences() -> None:
    scheduler = make_scheduler(max_sequences=2)
    for number in range(4):
        scheduler.add(make_sequence(number, [number]))
    assert len(step(scheduler)) == 2
    scheduler.remove(scheduler.running[0])
    assert shape(step(scheduler)) == [(1, 1, 0), (2, 1, 0)]


def test_a_known_prefix_is_not_computed_again() -> None:
    scheduler = make_scheduler()
    first = make_sequence(1, list(range(40)))
    scheduler.add(first)
    step(scheduler)
    again = make_sequence(2, [*range(32), 900, 901])
    scheduler.add(again)
    assert shape(step(scheduler)) == [(1, 1, 0), (2, 2, 0)]
    assert again.blocks[:2] == first.blocks[:2]
    assert again.blocks[2] != first.blocks[2]
    assert again.num_cached == 32


def test_prompt_logprobs_need_every_position_computed() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, list(range(40))))
    step(scheduler)
    scheduler.add(make_sequence(2, list(range(40)), prompt_logprobs=0))
    assert shape(step(scheduler)) == [(1, 1, 0), (2, 40, 0)]


def test_accepted_drafts_fill_blocks_that_others_find() -> None:
    scheduler = make_scheduler()
    first = make_sequence(1, list(range(15)), max_tokens=20)
    scheduler.add(first)
    step(scheduler, token=15)
    (work,) = plan(scheduler, {1: [16, 17, 99]})
    scheduler.commit(work, [16, 17, 18], 2)
    assert first.tokens == list(range(19))
    assert first.num_computed == 18, "the bonus token has no KV yet, the rejected draft's is void"
    scheduler.add(make_sequence(2, list(range(20))))
    assert shape(plan(scheduler))[1] == (2, 4, 0)


def test_the_youngest_gives_up_its_blocks_and_comes_back_first() -> None:
    scheduler = make_scheduler(num_blocks=4, cache=False)
    old = make_sequence(1, list(range(BLOCK)), max_tokens=40)
    young = make_sequence(2, list(range(BLOCK)), max_tokens=40)
    scheduler.add(old)
    scheduler.add(young)
    for _ in range(17):
        step(scheduler)
    scheduler.add(make_sequence(3, [1]))
    assert shape(step(scheduler)) == [(1, 1, 0)]
    assert scheduler.num_preemptions == 1
    assert [s.id for s in scheduler.waiting] == [2, 3]
    assert young.blocks == []
    assert young.num_output == 17
    scheduler.remove(old)
    assert shape(step(scheduler)) == [(2, 33, 0), (3, 1, 0)]
    assert young.num_cached == 0


def test_drafts_are_given_up_before_sequences_are() -> None:
    scheduler = make_scheduler(num_blocks=2)
    for number in (1, 2):
        scheduler.add(make_sequence(number, list(range(number * 100, number * 100 + BLOCK - 1))))
    step(scheduler)
    assert shape(plan(scheduler, {1: [7, 7]})) == [(1, 1, 0), (2, 1, 0)]
    assert scheduler.num_preemptions == 0


def test_removed_sequences_leave_nothing_behind() -> None:
    scheduler = make_scheduler(num_blocks=3, max_sequences=1)
    first, second = make_sequence(1, list(range(40))), make_sequence(2, [1])
    scheduler.add(first)
    scheduler.add(second)
    step(scheduler)
    scheduler.remove(second)
    scheduler.remove(first)
    scheduler.remove(first)
    assert not scheduler.running
    assert not scheduler.waiting
    assert scheduler.blocks.num_free == 3


class Serving(RuleBasedStateMachine):
    """Random arrivals, drafts, acceptance, cancellation and a pool in which little fits."""

    num_blocks, max_rows, max_sequences = 7, 24, 4
    context = num_blocks * BLOCK

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = make_scheduler(self.num_blocks, self.max_sequences, self.max_rows)
        self.alive: list[Sequence] = []
        self.first_admitted: list[int] = []
        self.kv: dict[tuple[int, int], tuple[int, ...]] = {}  # (block, offset): text up to and with that token
        self.count = 0

    @rule(shared=st.integers(0, 4), own=st.integers(1, 40), max_tokens=st.integers(1, 40))
    def arrive(self, shared: int, own: int, max_tokens: int) -> None:
        self.count += 1
        prompt = [*range(shared * BLOCK), *(1000 + self.count * 100 + i for i in range(own))]
        prompt = prompt[: self.context - 1]
        sequence = make_sequence(self.count, prompt, min(max_tokens, self.context - len(prompt)))
        self.alive.append(sequence)
        self.scheduler.add(sequence)

    @rule(seed=st.integers(0, 2**32), absent=st.floats(0, 1))
    def serve(self, seed: int, absent: float) -> None:
        rng = random.Random(seed)
        asked: list[int] = []
        pending = {s.id for s in self.alive if rng.random() < absent}

        def drafts_of(sequence: Sequence) -> list[int]:
            assert sequence.is_decoding
            asked.append(sequence.id)
            return [rng.randrange(50) for _ in range(rng.randrange(6))]

        works = self.scheduler.plan(lambda s: s.id in pending, drafts_of)
        assert len(asked) == len(set(asked)), "a draft can be taken only once"
        assert len({id(work.sequence) for work in works}) == len(works)
        assert sum(work.count + len(work.drafts) for work in works) <= self.max_rows
        for work in works:
            assert work.sequence in self.scheduler.running
            self.compute(work)
        for work in works:
            self.commit(work, rng)
        if not pending:
            assert works or not self.alive, "nothing moves"

    def compute(self, work: Work) -> None:
        """Writes KV for the rows, after checking that what they attend to is this text's own."""
        sequence = work.sequence
        assert work.count >= 1
        assert not work.drafts or work.reaches_end
        text = [*sequence.tokens[: sequence.num_computed + work.count], *work.drafts]
        assert len(sequence.blocks) * BLOCK >= len(text)
        for position in range(sequence.num_computed):
            where = (sequence.blocks[position // BLOCK], position % BLOCK)
            assert self.kv[where] == tuple(text[: position + 1]), "KV of another text"
        for position in range(sequence.num_computed, len(text)):
            self.kv[sequence.blocks[position // BLOCK], position % BLOCK] = tuple(text[: position + 1])

    def commit(self, work: Work, rng: random.Random) -> None:
        sequence = work.sequence
        if sequence.id not in self.first_admitted:
            self.first_admitted.append(sequence.id)
        if not work.reaches_end:
            self.scheduler.commit(work, (), 0)
            return
        accepted = rng.randint(0, len(work.drafts))
        new = [*work.drafts[:accepted], rng.randrange(50)]
        self.scheduler.commit(work, new, accepted)
        params = sequence.request.sampling
        assert params.max_tokens is not None
        assert sequence.num_output <= params.max_tokens
        assert sequence.num_pending == 1
        if sequence.num_output == params.max_tokens:
            self.leave(sequence)

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.leave(self.alive[data.draw(st.integers(0, len(self.alive) - 1))])

    def leave(self, sequence: Sequence) -> None:
        self.alive.remove(sequence)
        self.scheduler.remove(sequence)

    @invariant()
    def everyone_is_in_one_place(self) -> None:
        scheduler = self.scheduler
        places = [*scheduler.running, *scheduler.waiting]
        assert sorted(s.id for s in places) == sorted(s.id for s in self.alive)
        assert len(scheduler.running) <= self.max_sequences
        assert not any(s.blocks for s in scheduler.waiting)

    @invariant()
    def only_whole_known_prefixes_are_shared(self) -> None:
        held: dict[int, Sequence] = {}
        for sequence in self.scheduler.running:
            for index, block in enumerate(sequence.blocks):
                other = held.setdefault(block, sequence)
                if other is not sequence:
                    end = (index + 1) * BLOCK
                    assert min(sequence.num_computed, other.num_computed) >= end
                    assert sequence.tokens[:end] == other.tokens[:end]
        assert self.scheduler.blocks.num_free == self.num_blocks - len(held)

    @invariant()
    def admission_is_in_order_of_arrival(self) -> None:
        assert self.first_admitted == sorted(self.first_admitted)
        waiting = [s.id for s in self.scheduler.waiting]
        assert waiting == sorted(waiting)

    def teardown(self) -> None:
        """Everything still there is served to its end."""
        for seed in range(4000):
            if not self.alive:
                break
            self.serve(seed, 0.0)
        assert not self.alive
        assert self.scheduler.blocks.num_free == self.num_blocks


TestServing = Serving.TestCase
TestServing.settings = settings(max_examples=60, stateful_step_count=40)


@pytest.mark.parametrize("rows", [1, 2, 16])
def test_the_smallest_steps_still_serve_everyone(rows: int) -> None:
    scheduler = make_scheduler(num_blocks=2, max_rows=rows)
    for number in range(3):
        scheduler.add(make_sequence(number, [number] * 5, max_tokens=2))
    for _ in range(60):
        for work in step(scheduler, {number: [9, 9] for number in range(3)}):
            if work.sequence.num_output == 2:
                scheduler.remove(work.sequence)
    assert not scheduler.running
    assert not scheduler.waiting
