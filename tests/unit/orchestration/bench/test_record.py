"""Latencies of one request, and tokens that arrive in bursts."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestration.bench.record import spread
from tests.unit.orchestration.bench.records import answered

INCREASING = st.lists(st.floats(0, 1e3), min_size=1, max_size=20, unique=True).map(sorted)


@given(bursts=INCREASING, extra=st.integers(0, 40))
def test_spreading_gives_every_burst_a_token_and_keeps_all_gaps(bursts: list[float], extra: int) -> None:
    """The distribution of inter-token latencies does not depend on which burst had the further tokens."""
    tokens = spread(bursts, len(bursts) + extra)
    assert len(tokens) == len(bursts) + extra
    assert sorted(set(tokens)) == bursts
    assert list(tokens) == sorted(tokens)
    gaps = sorted(b - a for a, b in pairwise(tokens))
    assert gaps == sorted([b - a for a, b in pairwise(bursts)] + [0.0] * extra)


@given(bursts=INCREASING, num_tokens=st.integers(2, 20))
def test_first_and_last_arrival_always_stay(bursts: list[float], num_tokens: int) -> None:
    tokens = spread(bursts, num_tokens)
    assert (len(tokens), tokens[0], tokens[-1]) == (num_tokens, bursts[0], bursts[-1])


def test_no_tokens_need_no_burst_but_tokens_do() -> None:
    assert spread([], 0) == spread([1.0], 0) == ()
    with pytest.raises(ValueError, match="num_tokens"):
        spread([], 1)


def test_latencies_count_from_when_the_request_was_due() -> None:
    record = answered(2.0, 2.5, 2.5, 2.5, 3.5, due=1.0)
    assert record.ttft == 1.0
    assert record.e2el == 2.5
    assert record.tpot == pytest.approx(1.5 / 4)
    assert record.itl == [0.5, 0.0, 0.0, 1.0]
    assert record.icl == [0.5, 1.0]


def test_one_token_has_no_time_per_further_token() -> None:
    record = answered(2.0)
    assert (record.tpot, record.itl, record.icl) == (None, [], [])
