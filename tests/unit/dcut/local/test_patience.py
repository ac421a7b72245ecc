from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.dcut.local.patience import patience_s

SECONDS = st.floats(0, 1)


def test_a_short_wait_is_better_than_a_second_pass() -> None:
    assert 0.004 < patience_s(0.004, together_s=0.014, ready_s=0.011, pending_s=0.011) <= 0.008


def test_a_long_one_is_not() -> None:
    assert patience_s(0.020, together_s=0.014, ready_s=0.011, pending_s=0.011) == 0.0


def test_nothing_is_saved_where_time_grows_with_rows() -> None:
    assert patience_s(0.001, together_s=0.020, ready_s=0.010, pending_s=0.010) == 0.0


@given(SECONDS, SECONDS, SECONDS, SECONDS)
def test_never_more_than_twice_what_splitting_costs(
    expected: float, together: float, ready: float, pending: float
) -> None:
    assert patience_s(expected, together, ready, pending) <= 2 * max(ready + pending - together, 0.0)
