"""Figures of loads whose records are known."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestration.bench.report.figures import FIGURES
from orchestration.bench.summary import distribution, summarise
from tests.unit.orchestration.bench.records import answered, at_rate, drafted, failed


def test_throughput_is_over_first_due_to_last_end() -> None:
    summary = summarise([[answered(1.0, 2.0), answered(3.0, 4.0, due=2.5)]], {})
    assert summary.duration_s == 4.0
    assert summary.output_throughput == 1.0
    assert summary.request_throughput == 0.5
    assert summary.total_throughput == pytest.approx((20 + 4) / 4)
    assert summary.mean_concurrency == pytest.approx((2.0 + 1.5) / 4)
    assert (summary.goodput, summary.good_share, summary.drafting) == (None, None, None)


def test_failed_requests_count_as_errors_and_not_as_latency() -> None:
    summary = summarise(
        [[answered(1.0), failed("timeout", ended=9.0, text="first"), failed("timeout", text="second")]], {}
    )
    assert (summary.requests, summary.completed) == (3, 1)
    assert summary.errors == {"timeout": 2}
    assert summary.error_texts == {"timeout": "first"}
    assert summary.ttft is not None
    assert summary.ttft.count == 1
    assert summary.duration_s == 9.0


def test_a_load_that_failed_whole_has_no_latencies() -> None:
    summary = summarise([[failed("HTTP 500")]], {"ttft": 1.0})
    assert (summary.ttft, summary.e2el, summary.goodput, summary.output_throughput) == (None, None, 0.0, 0.0)


def test_goodput_counts_answers_within_the_objective() -> None:
    records = [answered(0.1, 0.2), answered(0.9, 1.0), failed("timeout")]
    summary = summarise([records], {"ttft": 500.0})
    assert summary.good_share == pytest.approx(1 / 3)
    assert summary.goodput == pytest.approx(1.0)


def test_accepted_length_weighs_answers_by_their_rounds() -> None:
    records = [
        answered(1.0, 2.0, speculation=drafted(rounds=10, tokens=10.0)),
        answered(1.0, 2.0, speculation=drafted(rounds=2, tokens=8.0)),
    ]
    drafting = summarise([records], {}).drafting
    assert drafting is not None
    assert drafting.accepted_length == pytest.approx(18 / 12)
    assert drafting.answers_by_drafter == {"mtp": 2}


def test_no_round_has_no_accepted_length() -> None:
    summary = summarise([[answered(1.0, speculation=drafted(0, 0.0, "none"))]], {})
    assert summary.drafting is not None
    assert math.isnan(summary.drafting.accepted_length)
    assert FIGURES["accepted_length"].value(summary) is None


def test_runs_alike_add_up() -> None:
    one = [list(at_rate(10, 0.01))]
    apart, whole = summarise(one, {}), summarise(one * 3, {})
    assert whole.requests == 3 * apart.requests
    assert whole.duration_s == pytest.approx(3 * apart.duration_s)
    assert whole.output_throughput == pytest.approx(apart.output_throughput)
    assert whole.tpot is not None
    assert whole.tpot.mean == pytest.approx(10.0)


def test_without_records_there_is_no_summary() -> None:
    with pytest.raises(ValueError, match="records"):
        summarise([[]], {})


@given(st.lists(st.floats(0, 1e4), min_size=1, max_size=50))
def test_percentiles_are_ordered_and_inside(seconds: list[float]) -> None:
    found = distribution(seconds)
    assert found is not None
    assert found.count == len(seconds)
    ordered = [found.min, found.p50, found.p90, found.p95, found.p99, found.max]
    assert all(a <= b + 1e-9 * abs(b) for a, b in pairwise(ordered))
    assert found.min == pytest.approx(min(seconds) * 1e3)
    assert found.max == pytest.approx(max(seconds) * 1e3)
