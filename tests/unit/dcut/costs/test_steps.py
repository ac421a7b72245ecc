from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.dcut.costs.corrected import CorrectedCosts
from services.dcut.costs.steps import UNMEASURED, StepCosts, StepSample

SECONDS = st.floats(1e-4, 10.0)


@st.composite
def tables(draw: st.DrawFn) -> StepCosts:
    """Measured in any disorder: times that fall with more rows, surcharges below zero."""
    rows = draw(st.lists(st.integers(1, 300), min_size=1, max_size=8, unique=True))
    samples = [StepSample(count, 64, 0, draw(SECONDS)) for count in rows]
    for context in draw(st.lists(st.integers(65, 4096), max_size=3, unique=True)):
        samples += [StepSample(count, context, 0, draw(SECONDS)) for count in draw(st.sets(st.sampled_from(rows)))]
    for prefill in draw(st.lists(st.integers(1, 512), max_size=3, unique=True)):
        samples += [StepSample(count, 64, prefill, draw(SECONDS)) for count in draw(st.sets(st.sampled_from(rows)))]
    return StepCosts(samples)


STEPS = st.tuples(st.integers(1, 400), st.floats(0, 8192), st.integers(0, 600), SECONDS)


@given(tables(), st.lists(STEPS, max_size=20), st.floats(0, 8192), st.integers(0, 600))
def test_more_of_anything_never_takes_less_time(
    table: StepCosts, steps: list[tuple[int, float, int, float]], context: float, prefill: int
) -> None:
    corrected = CorrectedCosts(table)
    for rows, at, prompts, seconds in steps:
        corrected.observe(rows, at, prompts, seconds)
    counts = np.arange(1, 500)
    for costs in (table, corrected):
        line = costs.seconds(counts, context, prefill)
        assert (line > 0).all()
        assert np.isfinite(line).all()
        assert (np.diff(line) >= -1e-9 * line[1:]).all()
        assert (costs.seconds(counts, context + 100, prefill) >= line * (1 - 1e-9)).all()
        assert (costs.seconds(counts, context, prefill + 50) >= line * (1 - 1e-9)).all()


def test_measured_times_are_given_back_and_a_staircase_stays_one() -> None:
    table = StepCosts(StepSample(rows, 64, 0, ms / 1e3) for rows, ms in ((1, 10), (16, 10), (17, 20), (32, 20)))
    assert table.seconds([1, 8, 16, 17, 32], 64).tolist() == [0.010, 0.010, 0.010, 0.020, 0.020]


def test_between_and_beyond_what_was_measured() -> None:
    table = StepCosts(
        [
            *(StepSample(rows, 64, 0, ms / 1e3) for rows, ms in ((1, 10), (5, 14), (9, 22))),
            StepSample(1, 164, 0, 0.011),
            StepSample(9, 164, 0, 0.027),
            StepSample(1, 64, 32, 0.030),
        ]
    )
    ms = lambda rows, context, prefill=0: pytest.approx(1e3 * float(table.seconds(rows, context, prefill)))  # noqa: E731
    assert ms(3, 64) == 12  # interpolated
    assert ms(11, 64) == 26  # the last slope goes on
    assert ms(9, 114) == 24.5  # half way to the longer context
    assert ms(9, 264) == 32  # as far again
    assert ms(5, 164) == 19  # measured for 1 and 9 rows: the nearest larger tells what the context adds
    assert ms(9, 64, 32) == 42  # measured for 1 row only
    assert ms(9, 10) == 22  # a shorter context than any measured


def test_prompts_that_were_not_measured_count_as_rows() -> None:
    table = StepCosts(StepSample(rows, 64, 0, ms / 1e3) for rows, ms in ((1, 10), (101, 110)))
    assert float(table.seconds(1, 64, 50)) == pytest.approx(0.060)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([], "samples: none"),
        ([StepSample(1, 64, 8, 0.1)], "samples: none"),
        ([StepSample(1, 64, 8, 0.1), StepSample(1, 128, 0, 0.1)], "samples: none"),
    ],
)
def test_a_table_needs_a_base_line(samples: list[StepSample], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StepCosts(samples)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ((0, 0, 0, 1.0), "rows: 0"),
        ((1, -1, 0, 1.0), "context: -1"),
        ((1, 0, -1, 1.0), "prefill: -1"),
        ((1, 0, 0, 0.0), "seconds: 0.0"),
        ((1, 0, 0, float("nan")), "seconds: nan"),
    ],
)
def test_a_sample_must_be_possible(fields: tuple[int, int, int, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StepSample(*fields)


def linear(rows: int, speed: float = 1.0) -> float:
    return speed * (0.010 + 0.001 * rows)


def measured() -> CorrectedCosts:
    return CorrectedCosts(StepCosts(StepSample(rows, 64, 0, linear(rows)) for rows in (1, 8, 16, 32, 64)))


def test_corrections_follow_a_machine_that_became_slower() -> None:
    costs = measured()
    for _ in range(200):
        costs.observe(12, 64, 0, linear(12, speed=1.5))
    assert float(costs.seconds(12, 64)) == pytest.approx(linear(12, 1.5), rel=0.01)
    # Counts that were not met lately follow, though not all the way.
    assert 1.2 < float(costs.seconds(64, 64)) / linear(64) < 1.55


def test_corrections_learn_the_shape_where_the_steps_are() -> None:
    costs = measured()
    for _ in range(300):
        costs.observe(8, 64, 0, linear(8))
        costs.observe(32, 64, 0, linear(32, speed=1.4))
    assert float(costs.seconds(8, 64)) == pytest.approx(linear(8), rel=0.03)
    assert float(costs.seconds(32, 64)) == pytest.approx(linear(32, 1.4), rel=0.03)


def test_one_pause_of_the_machine_changes_little() -> None:
    costs = measured()
    before = float(costs.seconds(8, 64))
    costs.observe(8, 64, 0, 30.0)
    assert float(costs.seconds(8, 64)) < 1.15 * before


def test_steps_with_prompts_correct_prompts_alone() -> None:
    samples = [StepSample(rows, 64, 0, linear(rows)) for rows in (1, 8, 64)]
    costs = CorrectedCosts(StepCosts([*samples, StepSample(1, 64, 64, linear(1) + 0.05)]))
    for _ in range(400):
        costs.observe(1, 64, 64, linear(1) + 0.10)
    assert float(costs.seconds(1, 64)) == pytest.approx(linear(1))
    assert float(costs.seconds(1, 64, 64)) == pytest.approx(linear(1) + 0.10, rel=0.02)
    assert costs.prefill_factor == pytest.approx(2.0, rel=0.05)


def test_without_a_table_the_first_step_tells_the_speed() -> None:
    costs = CorrectedCosts()
    assert not costs.is_measured
    costs.observe(8, 256, 0, 1.0)
    assert float(costs.seconds(8, 256)) == pytest.approx(1.0)
    ratio = float(costs.seconds(64, 256)) / float(costs.seconds(1, 256))
    assert ratio == pytest.approx(float(UNMEASURED.seconds(64, 256)) / float(UNMEASURED.seconds(1, 256)))
