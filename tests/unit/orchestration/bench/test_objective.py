"""Goodput's limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestration.bench.objective import is_met, parse
from tests.unit.orchestration.bench.records import answered, failed


def test_limits_are_read_in_milliseconds() -> None:
    assert parse(["ttft:500", "tpot:12.5"]) == {"ttft": 500.0, "tpot": 12.5}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("itl:5", "one of ttft, tpot, e2el"),
        ("ttft", "must be NAME:MS"),
        ("ttft:soon", "'soon' is no number"),
        ("ttft:0", "above 0"),
        ("ttft:nan", "above 0"),
        ("ttft:-1", "above 0"),
    ],
)
def test_wrong_limits_are_named(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse([text])


def test_a_figure_is_limited_once() -> None:
    with pytest.raises(ValueError, match="twice"):
        parse(["ttft:1", "ttft:2"])


def test_every_limit_counts() -> None:
    record = answered(0.4, 0.5, 0.6)
    assert is_met(record, {"ttft": 401, "tpot": 101, "e2el": 601})
    for name, limit in (("ttft", 399), ("tpot", 99), ("e2el", 599)):
        assert not is_met(record, {"ttft": 401, "tpot": 101, "e2el": 601, name: limit})


def test_a_failed_request_is_never_good_and_one_token_has_no_tpot() -> None:
    assert not is_met(failed("timeout"), {})
    assert is_met(answered(0.1), {"tpot": 1})


@given(st.lists(st.floats(0.001, 10), min_size=1, max_size=5).map(sorted), st.floats(1, 1e4), st.floats(0, 1e4))
def test_a_looser_limit_never_loses_a_request(arrivals: list[float], limit: float, more: float) -> None:
    record = answered(*arrivals)
    for name in ("ttft", "tpot", "e2el"):
        assert is_met(record, {name: limit + more}) >= is_met(record, {name: limit})
