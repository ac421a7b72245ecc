from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.dcut.costs.drafts import DraftCosts, DraftWait

WAITS = st.builds(
    DraftWait,
    st.sampled_from(["mtp", "dfly"]),
    st.integers(1, 128),
    st.integers(1, 16),
    st.floats(1e-5, 2.0),
    st.just(0.0),
)


def true_seconds(sequences: int, length: int) -> float:
    return 1e-3 + 2e-3 * length + 0.1e-3 * sequences + 0.05e-3 * sequences * length


def test_learns_what_rounds_of_other_sizes_will_take() -> None:
    costs, random_ = DraftCosts(), random.Random(1)
    for _ in range(300):
        sequences, length = random_.choice([1, 2, 4, 8]), random_.choice([1, 2, 3, 5])
        noise = random_.uniform(0.9, 1.1)
        costs.observe(DraftWait("mtp", sequences, length, noise * true_seconds(sequences, length), 0.0))
    for sequences, length in ((1, 3), (8, 1), (16, 7)):
        assert float(costs.seconds("mtp", sequences, length)) == pytest.approx(
            true_seconds(sequences, length), rel=0.15
        )


def test_follows_a_drafter_that_became_slower() -> None:
    costs = DraftCosts()
    for speed in (1.0, 4.0):
        for _ in range(200):
            costs.observe(DraftWait("mtp", 2, 3, speed * true_seconds(2, 3), 0.0))
    assert float(costs.seconds("mtp", 2, 3)) == pytest.approx(4 * true_seconds(2, 3), rel=0.05)


@given(st.lists(WAITS, max_size=30))
def test_never_negative_and_never_less_for_more(waits: list[DraftWait]) -> None:
    costs = DraftCosts()
    for wait in waits:
        costs.observe(wait)
    for kind in ("mtp", "dfly", "unknown"):
        table = costs.seconds(kind, np.arange(1, 100)[:, None], np.arange(1, 17)[None])
        assert np.isfinite(table).all()
        assert (table >= 0).all()
        assert (np.diff(table, axis=0) >= 0).all()
        assert (np.diff(table, axis=1) >= 0).all()


def test_tells_waits_apart_from_drafting() -> None:
    costs = DraftCosts()
    for _ in range(50):
        costs.observe(DraftWait("dfly", 1, 7, 0.010, 0.008))
    wait_s, busy_s = costs.means()["dfly"]
    assert (wait_s, busy_s) == (pytest.approx(0.010), pytest.approx(0.008))
