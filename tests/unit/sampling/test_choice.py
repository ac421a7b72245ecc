from __future__ import annotations

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from services.sampling.choice import greedy, sample
from services.sampling.noise import gumbel, noise_key, uniform_bits

NEVER = float("-inf")
LOGITS = st.lists(
    st.one_of(st.just(NEVER), st.floats(-30, 30, width=32), st.sampled_from([0.0, 1.0, 1.5])), min_size=1, max_size=40
).filter(lambda row: max(row) > NEVER)


def brute_force(logits: torch.Tensor, ids: torch.Tensor, key: int, position: int) -> int:
    """argmax over every id in fp64, the lowest id among equals."""
    scores = (logits.double() + gumbel(uniform_bits(key, position, ids)).double()).tolist()
    best = max(scores)
    return int(ids[scores.index(best)])


@given(LOGITS, st.integers(0, 2**64 - 1), st.integers(0, 10_000), st.integers(1, 5))
@settings(max_examples=400)
def test_equals_the_argmax_over_all_ids(row: list[float], key: int, position: int, stride: int) -> None:
    logits, ids = torch.tensor(row), torch.arange(len(row)) * stride
    assert sample(logits, ids, key, position) == brute_force(logits, ids, key, position)


def test_equals_the_argmax_over_large_rows() -> None:
    generator = torch.Generator().manual_seed(3)
    ids = torch.arange(30_000)
    for position in range(150):
        logits = torch.randn(30_000, generator=generator) * (0.0, 0.5, 3.0, 20.0)[position % 4]
        logits[torch.rand(30_000, generator=generator) < 0.3] = NEVER
        assert sample(logits, ids, 99, position) == brute_force(logits, ids, 99, position)


def test_worst_noise_does_not_lose_to_next_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """u rounds to 1 in fp32 for the largest bits: an infinite E would hand the choice to any other token."""
    top = torch.tensor([2**32 - 1, 2**31])
    monkeypatch.setattr("services.sampling.choice.uniform_bits", lambda key, position, ids: top[(ids == 9).long()])
    logits = torch.tensor([0.0, -20.0])
    assert int((logits.double() + gumbel(top).double()).argmax()) == 0
    assert sample(logits, torch.tensor([4, 9]), 1, 1) == 4


@given(st.integers(2**32 - 2**12, 2**32 - 1), st.integers(2**32 - 2**12, 2**32 - 1), st.floats(-1, 1, width=32))
@settings(max_examples=300)
def test_two_bad_draws_are_told_apart(first: int, second: int, lead: float) -> None:
    bits = torch.tensor([first, second])
    logits = torch.tensor([lead, 0.0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("services.sampling.choice.uniform_bits", lambda key, position, ids: bits[ids])
        chosen = sample(logits, torch.tensor([0, 1]), 1, 1)
    assert chosen == int((logits.double() + gumbel(bits).double()).argmax())


def test_distribution_over_seeds_is_p() -> None:
    logits = torch.tensor([2.0, 1.0, NEVER, 0.0, 1.0, -1.0])
    ids = torch.tensor([3, 4, 8, 100, 7000, 49_151])
    draws = 2000
    counts = dict.fromkeys(ids.tolist(), 0)
    for seed in range(draws):
        counts[sample(logits, ids, noise_key(seed, 0), 12)] += 1
    assert counts.pop(8) == 0
    expected = logits.softmax(-1)[[0, 1, 3, 4, 5]].double() * draws
    assert chisquare(list(counts.values()), (expected * (draws / expected.sum())).tolist()).pvalue > 1e-3


def test_distribution_over_positions_is_p() -> None:
    logits = torch.tensor([0.5, 0.0, -0.5, 0.0])
    counts = torch.zeros(4)
    for position in range(2000):
        counts[sample(logits, torch.arange(4), 2024, position)] += 1
    expected = logits.softmax(-1).double() * 2000
    assert chisquare(counts.tolist(), (expected * (2000 / expected.sum())).tolist()).pvalue > 1e-3


def test_equal_scores_go_to_the_lowest_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "services.sampling.choice.uniform_bits", lambda key, position, ids: torch.full_like(ids, 123_456_789)
    )
    assert sample(torch.tensor([0.0, 1.0, 1.0, 1.0]), torch.tensor([2, 5, 6, 9]), 0, 0) == 5


@given(st.lists(st.sampled_from([-1.0, 0.25, 0.5, 3.0]), min_size=1, max_size=3000))
@example([0.5] * 3000)
def test_greedy_ties_go_to_the_lowest_id(row: list[float]) -> None:
    logits = torch.tensor([row, row[::-1]], dtype=torch.bfloat16).float()
    assert greedy(logits).tolist() == [row.index(max(row)), row[::-1].index(max(row))]
