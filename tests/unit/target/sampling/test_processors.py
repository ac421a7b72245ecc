from __future__ import annotations

import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.target.sampling import processors

NEVER = float("-inf")
# Multiples of 1/8, as bf16 logits are, so that ties are frequent.
LOGITS = st.lists(st.integers(-40, 40).map(lambda n: n / 8), min_size=1, max_size=30)


def slow_survivors(row: list[float], min_p: float, top_k: int, top_p: float) -> list[int]:
    """Sort by logit and then id; cut by min-p, then top-k, then top-p, with exact sums."""
    best = max(row)
    order = sorted(range(len(row)), key=lambda token: (-row[token], token))
    order = [token for token in order if min_p == 0 or row[token] >= best + math.log(min_p)]
    # top-p looks at what top-k leaves, or at the whole row
    if top_k:
        order = order[:top_k]
    total = math.fsum(math.exp(row[token] - best) for token in order)
    kept, mass = [], 0.0
    for token in order:
        if kept and mass / total >= top_p:
            break
        kept.append(token)
        mass += math.exp(row[token] - best)
    return sorted(kept)


def _distance_to_boundary(row: list[float], min_p: float, top_k: int, top_p: float) -> float:
    """How near a cut comes to a sum or a floor that rounding could tip over."""
    best = max(row)
    least = min((abs(x - best - math.log(min_p)) for x in row), default=1.0) if min_p else 1.0
    order = sorted((x for x in row if not min_p or x >= best + math.log(min_p)), reverse=True)[: top_k or None]
    weights = [math.exp(x - best) for x in order]
    sums = [math.fsum(weights[: n + 1]) / math.fsum(weights) for n in range(len(weights))]
    return min(least, *(abs(s - top_p) for s in sums)) if top_p < 1 else least


def check(row: list[float], min_p: float, top_k: int, top_p: float) -> None:
    kept = processors.survivors(torch.tensor(row), min_p, top_k, top_p)
    assert kept.tolist() == slow_survivors(row, min_p, top_k, top_p)


@given(
    LOGITS,
    st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0]),
    st.integers(0, 40),
    st.one_of(st.just(1.0), st.floats(0.01, 0.999)),
)
@settings(max_examples=500)
@example([0.0] * 20, 0.0, 5, 1.0)  # the lowest ids among equals
@example([0.0] * 20, 0.0, 0, 0.33)
@example([0.0, 1.0, 1.0, 1.0, 0.0], 0.0, 2, 1.0)
@example([0.0, 1.0, 1.0, 1.0, 0.0], 0.3, 4, 0.6)
@example([2.0], 1.0, 1, 0.5)
@example([3.0, 3.0, 1.0], 1.0, 0, 1.0)
def test_survivors(row: list[float], min_p: float, top_k: int, top_p: float) -> None:
    if _distance_to_boundary(row, min_p, top_k, top_p) < 1e-5:
        min_p = 0.0 if min_p < 1.0 else min_p
        top_p = 1.0
    check(row, min_p, top_k, top_p)


@pytest.mark.parametrize("scale", [0.0, 0.02, 1.0, 8.0])
@pytest.mark.parametrize("top_p", [0.05, 0.37, 0.9, 0.9999, 1.0])
@pytest.mark.parametrize("top_k", [0, 1, 1023, 1024, 1025, 2999, 3000, 5000])
def test_survivors_of_large_rows(scale: float, top_p: float, top_k: int) -> None:
    """Flat rows hold less than top_p in their 1024 largest logits, so that all are sorted."""
    generator = torch.Generator().manual_seed(11)
    row = (torch.randn(3000, generator=generator) * scale).tolist()
    if scale == 0.0 and top_p < 1.0:
        top_p += 1.3e-4  # not a multiple of 1 / 3000
    kept = processors.survivors(torch.tensor(row), 0.0, top_k, top_p).tolist()
    expected = slow_survivors(row, 0.0, top_k, top_p)
    # Sums in fp32: the last few of thousands may fall on either side.
    assert abs(len(kept) - len(expected)) <= (3 if top_p > 0.999 else 1) * (top_p < 1.0)
    fewer, more = sorted((kept, expected), key=len)
    assert set(fewer) <= set(more)
    if scale == 0.0:
        assert kept == list(range(len(kept)))


def test_the_likeliest_always_survives() -> None:
    row = torch.tensor([0.0, 5.0, 5.0, 1.0])
    assert processors.survivors(row.clone(), 1.0, 1, 1e-6).tolist() == [1]
    assert processors.survivors(row.clone(), 0.0, 0, 1e-6).tolist() == [1]


def test_forbidden_tokens_do_not_come_back() -> None:
    row = [NEVER, 1.0, NEVER, 0.0]
    for arguments in ((0.0, 3, 1.0), (0.1, 4, 0.9), (0.0, 0, 0.99), (0.5, 0, 1.0)):
        kept = processors.survivors(torch.tensor(row), *arguments).tolist()
        assert set(kept) <= {1, 3}
        assert 1 in kept


def test_bias_and_prohibition() -> None:
    row = torch.zeros(5)
    processors.add_bias(row, {3: 2.5, 0: -100.0})
    assert row.tolist() == [-100.0, 0.0, 0.0, 2.5, 0.0]
    processors.forbid(row, [3, 4, 3])
    assert row.tolist() == [-100.0, 0.0, 0.0, NEVER, NEVER]


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4).map(tuple), max_size=6),
    st.lists(st.integers(0, 3), max_size=6),
)
@example([(1, 2)], [])
@example([(1, 1, 1)], [1, 1])
@example([(0,), (2, 3)], [2])
def test_bad_words(words: list[tuple[int, ...]], output: list[int]) -> None:
    expected = {token for token in range(4) for word in words if [*output, token][-len(word) :] == list(word)}
    assert set(processors.banned_next(words, output)) == expected


@given(
    st.lists(st.integers(-16, 16).map(lambda n: n / 4), min_size=6, max_size=6),
    st.frozensets(st.integers(0, 5), min_size=1),
    st.dictionaries(st.integers(0, 5), st.integers(1, 4)),
    st.sampled_from([0.5, 1.0, 1.25, 2.0]),
    st.sampled_from([-2.0, 0.0, 0.5]),
    st.sampled_from([-0.5, 0.0, 2.0]),
)
def test_penalties(
    row: list[float],
    prompt: frozenset[int],
    counts: dict[int, int],
    repetition: float,
    presence: float,
    frequency: float,
) -> None:
    expected = list(row)
    for token in range(6):
        if token in prompt or token in counts:
            expected[token] = expected[token] / repetition if expected[token] > 0 else expected[token] * repetition
        if token in counts:
            expected[token] -= presence + frequency * counts[token]
    logits = torch.tensor(row)
    processors.penalise(logits, prompt, counts, repetition, presence, frequency)
    assert logits.tolist() == pytest.approx(expected, abs=1e-6)


def test_what_is_kept_and_who_decides_where_all_of_it_is_forbidden() -> None:
    raw_V = torch.tensor([3.0, 2.0, 1.0, 0.0])
    allowed_V = torch.tensor([False, True, True, False])
    kept_V = processors.keep_only(torch.tensor([9.0, NEVER, 0.5, 7.0]), raw_V, allowed_V)
    assert kept_V.tolist() == [NEVER, NEVER, 0.5, NEVER]
    kept_V = processors.keep_only(torch.tensor([9.0, NEVER, NEVER, 7.0]), raw_V, allowed_V)
    assert kept_V.tolist() == [NEVER, 2.0, 1.0, NEVER]
    assert raw_V.tolist() == [3.0, 2.0, 1.0, 0.0]
