from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import chisquare

from services.sampling.noise import gumbel, noise_key, uniform_bits

KEYS = st.integers(0, 2**64 - 1)
POSITIONS = st.integers(0, 2**31 - 1)
IDS = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=20)
# With these fixed draws a p-value below this is a broken generator, not bad luck.
UNLIKELY = 1e-4


def reference_bits(key: int, position: int, token: int) -> int:
    """The same integers, without tensors."""
    z = (key + (position + 1) * 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    z ^= z >> 31

    def mix(x: int) -> int:
        x = (x ^ x >> 16) * 0x7FEB352D % 2**32
        x = (x ^ x >> 15) * 0x846CA68B % 2**32
        return x ^ x >> 16

    return mix(mix((token + z) % 2**32) ^ z >> 32)


@given(KEYS, POSITIONS, IDS)
@example(2**64 - 1, 2**31 - 1, [0, 1, 2**31 - 1])
@example(0, 0, [0])
def test_bits_are_those_of_plain_integers(key: int, position: int, ids: list[int]) -> None:
    bits = uniform_bits(key, position, torch.tensor(ids)).tolist()
    assert bits == [reference_bits(key, position, token) for token in ids]


@given(KEYS, POSITIONS, IDS, st.randoms(use_true_random=False))
def test_a_token_has_its_noise_in_any_selection(key: int, position: int, ids: list[int], rng: random.Random) -> None:
    """Drafters with a reduced vocabulary and targets after top-k see the same values."""
    everywhere = dict(zip(ids, uniform_bits(key, position, torch.tensor(ids)).tolist(), strict=True))
    some = rng.sample(ids, rng.randint(1, len(ids)))
    assert uniform_bits(key, position, torch.tensor(some)).tolist() == [everywhere[token] for token in some]


def test_noise_is_finite_at_both_ends() -> None:
    bits = torch.tensor([0, 1, 2**31, 2**32 - 129, 2**32 - 128, 2**32 - 2, 2**32 - 1])
    noise = gumbel(bits)
    assert noise.dtype == torch.float32
    assert torch.isfinite(noise).all()
    assert (noise.diff() <= 0).all(), "a larger u is a larger E, and so a smaller G"
    assert noise[0] == pytest.approx(33 * math.log(2), rel=1e-6)
    assert noise[-1] == pytest.approx(-math.log(33 * math.log(2)), rel=1e-6)


@given(st.integers(0, 2**32 - 1))
def test_noise_is_the_gumbel_of_its_bits(bits: int) -> None:
    u = (bits + 0.5) / 2**32
    assert float(gumbel(torch.tensor([bits]))) == pytest.approx(-math.log(-math.log1p(-u)), rel=1e-6, abs=1e-6)


def _p_value(bits: Iterable[int], bins: int = 64) -> float:
    counts = torch.bincount(torch.tensor(list(bits)) * bins >> 32, minlength=bins)
    return float(chisquare(counts.tolist()).pvalue)


def test_uniform_over_ids() -> None:
    ids = torch.arange(50_000)
    for key, position in itertools.product((0, 1, 2**63, noise_key(7, 0)), (0, 1, 4095)):
        assert _p_value(uniform_bits(key, position, ids).tolist()) > UNLIKELY, (key, position)


def test_uniform_over_positions_and_over_keys() -> None:
    ids = torch.tensor([0, 11, 49_151])
    by_position = [uniform_bits(5, position, ids).tolist() for position in range(4000)]
    by_key = [uniform_bits(noise_key(seed, 0), 3, ids).tolist() for seed in range(4000)]
    for rows in (by_position, by_key):
        for column in zip(*rows, strict=True):
            assert _p_value(column) > UNLIKELY


@pytest.mark.parametrize("other", ["next id", "next position", "next key", "next choice"])
def test_neighbours_are_independent(other: str) -> None:
    """The pair of two neighbouring draws is uniform over the square."""
    cells = torch.zeros(16 * 16)
    ids = torch.arange(200)
    for n in range(200):
        mine = uniform_bits(noise_key(n, 0), 17, ids)
        theirs = {
            "next id": lambda n=n: uniform_bits(noise_key(n, 0), 17, ids + 1),
            "next position": lambda n=n: uniform_bits(noise_key(n, 0), 18, ids),
            "next key": lambda n=n: uniform_bits(noise_key(n, 0) + 1, 17, ids),
            "next choice": lambda n=n: uniform_bits(noise_key(n, 1), 17, ids),
        }[other]()
        cells += torch.bincount((mine >> 28) * 16 + (theirs >> 28), minlength=256)
    assert float(chisquare(cells.tolist()).pvalue) > UNLIKELY


def test_keys_differ_by_seed_and_choice() -> None:
    seeds = [0, 1, 2, 255, 256, 2**32, 2**64 - 1]
    keys = {noise_key(seed, choice) for seed in seeds for choice in range(16)}
    assert len(keys) == len(seeds) * 16
    assert all(0 <= key < 2**64 for key in keys)


def test_key_is_pinned() -> None:
    """A seed must give the same text after an upgrade and on every machine."""
    assert noise_key(1, 2) == 3330332637159620160
    assert uniform_bits(noise_key(1, 2), 3, torch.tensor([0, 49_151])).tolist() == [3237919879, 971534757]
