"""Rates that may run into debt, and what each key has in use."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.access.bucket import Bucket
from services.gateway.access.caller import ANYONE, Caller
from services.gateway.access.keys import new_key
from services.gateway.access.limits import Limiter
from services.gateway.errors import ApiError, ErrorKind
from tests.unit.gateway.access.test_keys import Clock, record


@given(
    limit=st.integers(1, 1000),
    asks=st.lists(st.tuples(st.floats(0, 30), st.integers(0, 400)), max_size=60),
)
def test_no_more_than_the_rate_and_one_burst_begin(limit: int, asks: list[tuple[float, int]]) -> None:
    """Of all that was let in, everything but the last piece fits into the burst and what has flowed since."""
    now = 0.0
    bucket = Bucket(limit, now)
    taken = [0]
    for pause, units in asks:
        now += pause
        if bucket.wait_s(now) == 0:
            bucket.take(now, units)
            taken.append(units)
        assert sum(taken[:-1]) <= limit + now * limit / 60 + 1e-6


@given(limit=st.integers(1, 1000), debt=st.integers(0, 100_000))
def test_who_waits_as_told_is_let_in(limit: int, debt: int) -> None:
    bucket = Bucket(limit, 0.0)
    bucket.take(0.0, debt)
    wait_s = bucket.wait_s(0.0)
    if wait_s > 0:
        assert bucket.wait_s(wait_s * 0.99) > 0
    assert bucket.wait_s(wait_s + 1e-6) < 1e-6


def test_a_clock_that_steps_back_gives_nothing() -> None:
    bucket = Bucket(60, 100.0)
    bucket.take(100.0, 60)
    assert bucket.wait_s(50.0) == 1.0
    assert bucket.wait_s(100.5) == 0.5


def limited(**limits: int) -> Caller:
    return Caller(record(new_key(), **limits))


def test_requests_a_minute() -> None:
    clock = Clock()
    limiter, caller, other = Limiter(1.0, clock), limited(requests_per_minute=2), limited(requests_per_minute=2)
    limiter.count_request(caller)
    limiter.count_request(caller)
    with pytest.raises(ApiError, match="2 requests a minute") as error:
        limiter.count_request(caller)
    assert error.value.kind is ErrorKind.RATE_LIMITED
    assert error.value.retry_after_s == pytest.approx(30)
    limiter.count_request(other)
    clock.now += 30
    limiter.count_request(caller)


def test_tokens_are_paid_afterwards_and_the_debt_is_waited_off() -> None:
    clock = Clock()
    limiter, caller = Limiter(1.0, clock), limited(tokens_per_minute=60)
    with limiter.generating(caller, 10):
        limiter.charge(caller, 90)
    with pytest.raises(ApiError, match="60 tokens a minute") as error, limiter.generating(caller, 10):
        pass
    assert error.value.retry_after_s == pytest.approx(31)
    clock.now += 31.1
    with limiter.generating(caller, 10):
        pass


def test_places_at_a_time() -> None:
    limiter, caller = Limiter(1.5), limited(max_concurrent_requests=2)
    with ExitStack() as running:
        running.enter_context(limiter.generating(caller, 10))
        second = limiter.generating(caller, 10)
        second.__enter__()
        with pytest.raises(ApiError, match="the most it may have") as error, limiter.generating(caller, 10):
            pass
        assert error.value.retry_after_s == 1.5
        second.__exit__(None, None, None)
        running.enter_context(limiter.generating(caller, 10))


@given(greedy=st.integers(1, 6), more=st.integers(0, 200))
def test_greedy_keys_leave_a_place(greedy: int, more: int) -> None:
    limit, limiter, active = 2**greedy + more, Limiter(1.0), 0
    with ExitStack() as running:
        for caller in [limited() for _ in range(greedy)]:
            for _ in range(limit + 1):
                if active == limit:
                    break
                try:
                    running.enter_context(limiter.generating(caller, limit - active))
                except ApiError:
                    break
                active += 1
        with limiter.generating(limited(), limit - active):
            pass


def test_without_keys_nothing_is_counted() -> None:
    limiter = Limiter(1.0)
    limiter.count_request(ANYONE)
    limiter.charge(ANYONE, 10**9)
    with ExitStack() as running:
        for _ in range(10):
            running.enter_context(limiter.generating(ANYONE, 0))


def test_a_changed_limit_starts_anew() -> None:
    limiter, key = Limiter(1.0, Clock()), new_key()
    limiter.count_request(Caller(record(key, requests_per_minute=1)))
    with pytest.raises(ApiError):
        limiter.count_request(Caller(record(key, requests_per_minute=1)))
    limiter.count_request(Caller(record(key, requests_per_minute=2)))
    limiter.count_request(Caller(record(key)))
