"""The drafting state of one sequence, against a model that remembers everything."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.target.drafting.interface import Guess
from services.target.drafting.state import DraftReply, DraftState, Outcome

VOCABULARY = 50


def asked(base: int = 10, max_draft: int = 3, deadline: float = 1.0) -> DraftState:
    state = DraftState()
    state.restart()
    state.held = base
    state.ask(base, max_draft, deadline)
    return state


def reply(epoch: int = 1, base: int = 10, tokens: tuple[int, ...] = (4, 5)) -> DraftReply:
    return DraftReply(epoch, base, tokens, (0.5,) * len(tokens))


def test_a_timely_answer_is_taken_once() -> None:
    state = asked()
    assert state.on_draft(reply(), 1.0, VOCABULARY) is Outcome.DRAFTED
    assert not state.is_waiting
    assert state.take(10) == Guess((4, 5), (0.5, 0.5))
    assert state.take(10) is None


@pytest.mark.parametrize("answer", [reply(epoch=0), reply(epoch=2), reply(base=9), reply(base=11)])
def test_an_answer_to_something_else_is_stale_and_the_ask_still_open(answer: DraftReply) -> None:
    state = asked()
    assert state.on_draft(answer, 0.5, VOCABULARY) is Outcome.STALE
    assert state.is_waiting


@pytest.mark.parametrize(
    "answer",
    [
        reply(tokens=(1, 2, 3, 4)),
        reply(tokens=(50,)),
        reply(tokens=(2**32 - 1,)),
        DraftReply(1, 10, (1, 2), (0.5,)),
        DraftReply(1, 10, (1,), (0.5, 0.5)),
        DraftReply(1, 10, (1,), (1.5,)),
        DraftReply(1, 10, (1,), (-0.1,)),
        DraftReply(1, 10, (1,), (math.nan,)),
        DraftReply(1, 10, (1,), (math.inf,)),
    ],
)
def test_an_answer_out_of_bounds_is_a_draft_of_length_zero(answer: DraftReply) -> None:
    state = asked()
    assert state.on_draft(answer, 0.5, VOCABULARY) is Outcome.MALFORMED
    assert not state.is_waiting
    assert state.take(10) is None


def test_a_late_answer_is_dropped_whether_or_not_anybody_noticed() -> None:
    unnoticed, noticed = asked(), asked()
    assert noticed.expire(1.5)
    assert not noticed.expire(1.6), "told once"
    assert not noticed.is_waiting
    for state in (unnoticed, noticed):
        assert state.on_draft(reply(), 1.5, VOCABULARY) is Outcome.LATE
        assert state.on_draft(reply(), 1.5, VOCABULARY) is Outcome.STALE, "a second copy"
        assert state.take(10) is None


def test_a_draft_outlives_its_drafter_but_not_its_text() -> None:
    state = asked()
    state.on_draft(reply(), 0.5, VOCABULARY)
    state.lose()
    assert state.take(10) == Guess((4, 5), (0.5, 0.5))
    state = asked()
    state.on_draft(reply(), 0.5, VOCABULARY)
    state.void()
    assert state.take(10) is None


def test_a_draft_for_another_length_is_dropped() -> None:
    state = asked()
    state.on_draft(reply(), 0.5, VOCABULARY)
    assert state.take(11) is None
    assert state.take(10) is None


def test_a_shed_ask_is_over() -> None:
    state = asked()
    assert not state.on_shed(1, 9)
    assert state.on_shed(1, 10)
    assert not state.is_waiting
    assert not state.on_shed(1, 10)


replies = st.builds(
    DraftReply,
    st.integers(0, 4),
    st.integers(0, 12),
    st.lists(st.integers(0, VOCABULARY + 2), max_size=5).map(tuple),
    st.lists(st.floats(allow_nan=True), max_size=5).map(tuple),
)


@given(st.lists(replies, max_size=8))
def test_no_answer_is_believed_without_an_ask(answers: list[DraftReply]) -> None:
    state = DraftState()
    for answer in answers:
        assert state.on_draft(answer, 0.0, VOCABULARY) is Outcome.STALE
    assert not state.has_guess


class StateMachine(RuleBasedStateMachine):
    """A guess that is taken was asked for at that length, came in time, is within bounds, and comes once."""

    def __init__(self) -> None:
        super().__init__()
        self.state = DraftState()
        self.now = 0.0
        self.length = 1
        self.epochs = {0}
        self.open_ask: tuple[int, int, int, float] | None = None  # epoch, base, max_draft, deadline
        self.good: DraftReply | None = None

    @rule(seconds=st.floats(0, 2))
    def passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(tokens=st.integers(1, 4))
    def commit(self, tokens: int) -> None:
        self.length += tokens

    @rule()
    def restart(self) -> None:
        epoch = self.state.restart()
        assert epoch not in self.epochs
        self.epochs.add(epoch)
        self.open_ask = None

    @rule()
    def lose(self) -> None:
        self.state.lose()
        self.open_ask = None

    @rule()
    def void(self) -> None:
        self.state.void()
        self.open_ask = self.good = None

    @precondition(lambda self: self.state.held is not None)
    @rule(max_draft=st.integers(1, 4), wait=st.floats(0, 2))
    def ask(self, max_draft: int, wait: float) -> None:
        self.state.held = self.length
        self.state.ask(self.length, max_draft, self.now + wait)
        self.open_ask = (self.state.epoch, self.length, max_draft, self.now + wait)
        self.good = None

    @rule(
        epoch_off=st.sampled_from([0, 0, 0, 1, -1]),
        base_off=st.sampled_from([0, 0, 0, 1, -2]),
        size=st.integers(0, 5),
        token=st.sampled_from([0, VOCABULARY - 1, VOCABULARY]),
        probability=st.sampled_from([0.0, 1.0, 1.1, math.nan]),
    )
    def answer(self, epoch_off: int, base_off: int, size: int, token: int, probability: float) -> None:
        epoch, base, max_draft, deadline = self.open_ask or (self.state.epoch, self.length, 4, -1.0)
        answer = DraftReply(epoch + epoch_off, base + base_off, (token,) * size, (probability,) * size)
        outcome = self.state.on_draft(answer, self.now, VOCABULARY)
        if self.open_ask is None or epoch_off or base_off:
            assert outcome is Outcome.STALE
            return
        self.open_ask = None
        fits = size <= max_draft and (not size or (token < VOCABULARY and 0 <= probability <= 1))
        if self.now > deadline:
            assert outcome is Outcome.LATE
        elif not fits:
            assert outcome is Outcome.MALFORMED
        else:
            assert outcome is Outcome.DRAFTED
            self.good = answer if size else None

    @rule()
    def expire(self) -> None:
        self.state.expire(self.now)

    @rule()
    def take(self) -> None:
        guess, good = self.state.take(self.length), self.good
        self.good = None
        if guess is None:
            assert good is None or good.base != self.length
        else:
            assert good is not None
            assert (good.base, good.tokens, good.probabilities) == (self.length, guess.tokens, guess.probabilities)

    @invariant()
    def waits_only_for_an_open_ask(self) -> None:
        assert not self.state.is_waiting or self.open_ask is not None


TestStateMachine = StateMachine.TestCase
TestStateMachine.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
