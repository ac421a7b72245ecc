"""Arrival processes of open-loop load."""

from __future__ import annotations

import math
import statistics
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from orchestration.bench.arrivals import poisson, read_trace


@given(
    rate=st.floats(0.01, 1e4),
    count=st.integers(0, 50),
    seed=st.integers(0, 2**32),
    burstiness=st.floats(0.05, 20),
)
def test_arrivals_begin_at_once_and_never_go_back(rate: float, count: int, seed: int, burstiness: float) -> None:
    times = poisson(rate, count, seed, burstiness)
    assert len(times) == count
    assert times[:1] in ((), (0.0,))
    assert all(a <= b for a, b in pairwise(times))
    assert times == poisson(rate, count, seed, burstiness)


def test_gaps_of_a_poisson_process_are_exponential() -> None:
    gaps = [b - a for a, b in pairwise(poisson(5.0, 4000, seed=3))]
    assert stats.kstest(gaps, "expon", args=(0, 1 / 5.0)).pvalue > 0.01


@pytest.mark.parametrize("burstiness", [0.25, 4.0])
def test_burstiness_keeps_the_rate_and_sets_the_variation(burstiness: float) -> None:
    gaps = [b - a for a, b in pairwise(poisson(10.0, 8000, seed=1, burstiness=burstiness))]
    assert statistics.mean(gaps) == pytest.approx(0.1, rel=0.1)
    variation = statistics.stdev(gaps) / statistics.mean(gaps)
    assert variation == pytest.approx(1 / math.sqrt(burstiness), rel=0.1)


def test_an_infinite_rate_sends_all_at_once() -> None:
    assert poisson(math.inf, 3, seed=0) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("rate", "burstiness", "field"),
    [(0, 1, "request_rate"), (-1, 1, "request_rate"), (math.nan, 1, "request_rate"), (1, 0, "burstiness")],
)
def test_wrong_rates_are_named(rate: float, burstiness: float, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        poisson(rate, 3, 0, burstiness)


def test_traces_hold_seconds_or_published_time_stamps(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trace.write_text("10.5\n11\n\n12.5\n")
    assert read_trace(trace) == (0.0, 0.5, 2.0)
    trace.write_text('{"timestamp": 3000, "input_length": 5}\n{"timestamp": 4500}\n')
    assert read_trace(trace, scale=2.0) == (0.0, 3.0)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("1\nsoon\n", ":2: 'soon' is no arrival"),
        ('{"time": 1}\n', ":1: "),
        ("[1]\n", ":1: "),
        ("2\n1\n", ":2: 1.0 s comes before"),
        ("Infinity\n", "must be finite"),
        ("\n", "there is no arrival in it"),
    ],
)
def test_mistakes_in_traces_are_told_with_their_line(tmp_path: Path, text: str, told: str) -> None:
    trace = tmp_path / "trace"
    trace.write_text(text)
    with pytest.raises(ValueError, match=told):
        read_trace(trace)
