from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.training.synthesis.loops import MAX_PERIOD, MIN_LOOPED, cut_loop, loop_start


@given(
    st.lists(st.integers(100, 999), max_size=40),
    st.lists(st.integers(0, 9), min_size=1, max_size=MAX_PERIOD),
    st.integers(0, 20),
)
def test_a_loop_is_found_wherever_it_begins(before: list[int], period: list[int], extra: int) -> None:
    length = max(MIN_LOOPED, 3 * len(period)) + extra
    looped = [period[i % len(period)] for i in range(length)]
    start = loop_start(before + looped)
    assert start is not None
    assert start <= len(before)
    cut = cut_loop(before + looped)
    assert cut is not None
    assert list(cut) == (before + looped)[: len(cut)]
    assert len(before) <= len(cut) <= len(before) + len(period)


@given(st.lists(st.integers(0, 10**6), max_size=200, unique=True))
def test_tokens_that_never_repeat_do_not_loop(tokens: list[int]) -> None:
    assert loop_start(tokens) is None
    assert cut_loop(tokens) is None


def test_short_repetition_is_no_loop() -> None:
    assert loop_start([1, 2] * 8) is None  # a table's rule, a run of digits
