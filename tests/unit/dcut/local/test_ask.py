from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from services.dcut.costs.steps import Floats
from services.dcut.local.ask import choose_lengths


def scenarios(*acceptances: float, length: int = 7) -> np.ndarray:
    """One sequence each, whose drafts stand with that probability at every position."""
    return np.stack([np.cumprod(np.full((4, length), a), axis=1) for a in acceptances])


def flat(rows: Floats) -> Floats:
    """Rows cost little: one sequence on most hardware."""
    return 0.010 + 0.0003 * rows


def steep(rows: Floats) -> Floats:
    """Every row costs its share: a loaded target."""
    return 0.001 + 0.001 * rows


def draft(a: float, b: float = 0.0):  # type: ignore[no-untyped-def]
    return lambda source, sequences, length: a + b * length + 0.0 * sequences


def test_asks_a_good_drafter_and_not_a_bad_one() -> None:
    assert choose_lengths(scenarios(0.9), [0], 1, flat, draft(0.002)).tolist() == [7]
    assert choose_lengths(scenarios(0.05), [0], 1, flat, draft(0.002)).tolist() == [0]


def test_a_draft_that_takes_longer_than_it_saves_is_not_asked_for() -> None:
    assert choose_lengths(scenarios(0.7), [0], 1, flat, draft(0.002))[0] > 0
    assert choose_lengths(scenarios(0.7), [0], 1, flat, draft(0.050)).tolist() == [0]
    # Unless the target has something else to do meanwhile.
    assert choose_lengths(scenarios(0.7), [0], 1, flat, draft(0.050), hidden_s=0.049)[0] > 0


def test_long_drafts_only_where_positions_are_worth_their_time() -> None:
    short = int(choose_lengths(scenarios(0.5), [0], 1, flat, draft(0.001, 0.001))[0])
    assert 0 < short < 7
    assert choose_lengths(scenarios(0.98), [0], 1, flat, draft(0.001, 0.001)).tolist() == [7]


def test_under_load_only_the_sequences_that_pay_are_asked() -> None:
    found = choose_lengths(scenarios(0.95, 0.1, 0.1, 0.95), [0, 0, 0, 0], 4, steep, draft(0.0005))
    assert found[0] > 0
    assert found[3] > 0
    assert found.tolist()[1:3] == [0, 0]


def test_confident_drafts_among_bad_ones_are_worth_asking_for() -> None:
    """Half of the drafts stand, half fall: on average not worth their rows, but what falls will be cut."""
    mixed = np.stack([np.concatenate((scenarios(0.98)[0], scenarios(0.02)[0]))])
    same_mean = scenarios(0.5)
    assert choose_lengths(mixed, [0], 1, steep, draft(0.0002))[0] > 0
    assert choose_lengths(same_mean, [0], 1, steep, draft(0.0008)).tolist() == [0]


def test_a_slow_kind_is_left_out_when_others_would_wait_for_it() -> None:
    def seconds(source: int, sequences: Floats, length: Floats) -> Floats:
        return (0.001 if source == 0 else 0.040) + 0.0 * sequences * length

    found = choose_lengths(scenarios(0.8, 0.8), [0, 1], 2, flat, seconds)
    assert found[0] > 0
    assert found[1] == 0


def test_for_requests_the_slow_do_not_wait_for_one_that_is_fast() -> None:
    """In tokens the fast sequence makes up for the wait of the five others; in requests it does not."""
    products = scenarios(0.95, 0.05, 0.05, 0.05, 0.05, 0.05, length=5)
    of = ([0] * 6, 6, lambda rows: 0.010 + 0.0005 * rows, draft(0.002))
    assert choose_lengths(products, *of)[0] == 5
    assert choose_lengths(products, *of, proportional=True).tolist() == [0] * 6
    assert choose_lengths(scenarios(0.95), [0], 1, flat, draft(0.002), proportional=True).tolist() == [7]


def test_nobody_to_ask() -> None:
    assert choose_lengths(np.zeros((0, 4, 7)), [], 0, flat, draft(0.001)).tolist() == []
    assert choose_lengths(np.zeros((2, 4, 0)), [0, 0], 2, flat, draft(0.001)).tolist() == [0, 0]


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 7), st.integers(0, 2)), min_size=1, max_size=12),
    st.integers(0, 8),
    st.floats(0, 0.05),
    st.floats(0, 0.005),
)
def test_never_beyond_a_bound_and_never_believed_slower_than_plain(
    sequences: list[tuple[float, int, int]], others: int, wait: float, row: float
) -> None:
    products = np.stack([np.cumprod(np.full((4, 7), a), axis=1) * (np.arange(7) < limit) for a, limit, _ in sequences])
    batch = len(sequences) + others

    def step(rows: Floats) -> Floats:
        return 0.010 + row * np.asarray(rows)

    found = choose_lengths(products, [source for _, _, source in sequences], batch, step, draft(wait))
    assert all(0 <= length <= limit for length, (_, limit, _) in zip(found, sequences, strict=True))
    if found.any():
        # With what is asked kept whole or cut as is best, never both slower than plain.
        plain = batch / float(step(np.array(batch)))
        gains = np.sort(np.concatenate([p[0, :n] for p, n in zip(products, found, strict=True)]))[::-1]
        rates = (batch + np.cumsum(gains)) / (step(batch + 1 + np.arange(len(gains))) + wait)
        assert rates.max() > plain
