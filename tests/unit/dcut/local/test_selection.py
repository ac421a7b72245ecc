from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.dcut.local.selection import keep_all, keep_exact, keep_proportional, keep_quarters, survival

CONFIDENCES = st.lists(st.lists(st.floats(0, 1), max_size=4), min_size=1, max_size=4)


# Drafts, sequences without one, how the step time grows, rows that have room, time already spent.
ANY_LOAD = given(
    CONFIDENCES,
    st.integers(0, 5),
    st.lists(st.floats(0, 1), min_size=1, max_size=5),
    st.integers(0, 16),
    st.sampled_from([0.0, 0.3]),
)


def matrix(drafts: Sequence[Sequence[float]]) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.array([len(draft) for draft in drafts])
    filled = np.full((len(drafts), max(int(lengths.max()), 1)), 0.99)  # past a draft's end there is no telling
    for row, draft in enumerate(drafts):
        filled[row, : len(draft)] = draft
    return survival(filled, lengths), lengths


def step_times(size: int, steps: Sequence[float]) -> np.ndarray:
    return 1.0 + np.cumsum([0.0, *(steps[at % len(steps)] for at in range(size))])


def speed(
    drafts: Sequence[Sequence[float]], kept: Sequence[int], batch: int, seconds: np.ndarray, spent: float
) -> float:
    """Expected tokens a second when exactly these prefixes are verified."""
    tokens = batch + sum(
        float(np.prod(draft[:at])) for draft, n in zip(drafts, kept, strict=True) for at in range(1, n + 1)
    )
    return tokens / (spent + float(seconds[sum(kept)]))


@ANY_LOAD
def test_nothing_beats_it_over_every_number_and_every_choice_of_prefixes(
    drafts: list[list[float]], others: int, steps: list[float], limit: int, spent: float
) -> None:
    batch = len(drafts) + others
    products, lengths = matrix(drafts)
    seconds = step_times(min(limit, int(lengths.sum())), steps)
    kept = keep_exact(products, lengths, batch, seconds, spent).tolist()
    assert all(0 <= n <= len(draft) for n, draft in zip(kept, drafts, strict=True))
    assert sum(kept) <= limit
    choices = itertools.product(*(range(len(draft) + 1) for draft in drafts))
    best = max(speed(drafts, choice, batch, seconds, spent) for choice in choices if sum(choice) < len(seconds))
    assert speed(drafts, kept, batch, seconds, spent) == pytest.approx(best, rel=1e-9)


@given(
    st.lists(st.tuples(st.lists(st.floats(0, 1), max_size=4), st.floats(0.1, 4)), min_size=1, max_size=4),
    st.lists(st.floats(0, 1), min_size=1, max_size=5),
)
def test_nothing_beats_it_where_sequences_count_unequally(
    weighted: list[tuple[list[float], float]], steps: list[float]
) -> None:
    drafts, weights = [draft for draft, _ in weighted], np.array([weight for _, weight in weighted])
    products, lengths = matrix(drafts)
    seconds = step_times(int(lengths.sum()), steps)

    def value(kept: Sequence[int]) -> float:
        gained = [w * products[row, :n].sum() for row, (w, n) in enumerate(zip(weights, kept, strict=True))]
        return float((weights.sum() + sum(gained)) / seconds[sum(kept)])

    kept = keep_exact(products * weights[:, None], lengths, float(weights.sum()), seconds).tolist()
    best = max(value(choice) for choice in itertools.product(*(range(len(draft) + 1) for draft in drafts)))
    assert value(kept) == pytest.approx(best, rel=1e-9)


@ANY_LOAD
def test_nothing_beats_the_proportional_form_in_the_geometric_mean(
    drafts: list[list[float]], others: int, steps: list[float], limit: int, spent: float
) -> None:
    batch = len(drafts) + others
    products, lengths = matrix(drafts)
    seconds = step_times(min(limit, int(lengths.sum())), steps)

    def value(kept: Sequence[int]) -> float:
        logs = [np.log1p(products[row, :n].sum()) for row, n in enumerate(kept)]
        return float(np.exp(sum(logs) / batch) / (spent + seconds[sum(kept)]))

    kept = keep_proportional(products, lengths, batch, seconds, spent).tolist()
    choices = itertools.product(*(range(len(draft) + 1) for draft in drafts))
    best = max(value(choice) for choice in choices if sum(choice) < len(seconds))
    assert value(kept) == pytest.approx(best, rel=1e-9)


@given(CONFIDENCES, st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_quarters_are_never_better_and_never_none(drafts: list[list[float]], steps: list[float]) -> None:
    products, lengths = matrix(drafts)
    total = int(lengths.sum())
    seconds = step_times(total, steps)
    exact = keep_exact(products, lengths, len(drafts), seconds).tolist()
    quarters = keep_quarters(products, lengths, len(drafts), seconds).tolist()
    assert sum(quarters) in {int(np.ceil(part * total)) for part in (0.25, 0.5, 0.75, 1)}
    assert all(n <= len(draft) for n, draft in zip(quarters, drafts, strict=True))
    assert speed(drafts, quarters, len(drafts), seconds, 0) <= speed(drafts, exact, len(drafts), seconds, 0) * (
        1 + 1e-9
    )


def test_keeps_nothing_where_rows_cost_more_than_they_bring() -> None:
    products, lengths = matrix([[0.3, 0.3], [0.2]])
    assert keep_exact(products, lengths, 2, step_times(3, [0.5])).tolist() == [0, 0]


def test_keeps_the_likely_rows_of_all_sequences_together() -> None:
    products, lengths = matrix([[0.9, 0.9, 0.9], [0.2, 0.9], [0.5]])
    assert keep_exact(products, lengths, 3, step_times(6, [0.1])).tolist() == [3, 0, 1]


def test_anchors_count_in_the_numerator() -> None:
    """Without them one more row would always look worth it: here 1 / 1 beats 1.3 / 1.4."""
    products, lengths = matrix([[0.3]])
    assert keep_exact(products, lengths, 1, np.array([1.0, 1.4])).tolist() == [0]


def test_a_wait_that_is_over_makes_more_rows_worth_it() -> None:
    products, lengths = matrix([[0.3]])
    assert keep_exact(products, lengths, 1, np.array([1.0, 1.4]), spent_s=0.5).tolist() == [1]


def test_equal_rows_are_kept_from_the_front() -> None:
    products, lengths = matrix([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    kept = keep_exact(products, lengths, 2, np.array([1.0, 1.0, 1.0, 1.0, 9.0]))
    assert kept.tolist() == [3, 0]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.integers(0, 20))
def test_all_is_all_there_is_room_for(lengths: list[int], limit: int) -> None:
    kept = keep_all(np.array(lengths), limit)
    assert kept.sum() == min(sum(lengths), limit)
    assert (kept <= lengths).all()
