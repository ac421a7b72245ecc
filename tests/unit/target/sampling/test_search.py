"""The search by kernel finds what the search by torch finds: the same token, whatever the logits."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from services.models.cache import cache_root
from services.sampling.choice import near_best, sample
from services.target.kernels.build import KernelsUnavailable, load_kernels
from services.target.sampling.search import NativeSearch

NEVER = float("-inf")


@pytest.fixture(scope="module")
def search() -> NativeSearch:
    try:
        return NativeSearch(load_kernels(cache_root()))
    except KernelsUnavailable as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("count", [1, 15, 16, 17, 1000, 49_152])
@pytest.mark.parametrize("scale", [0.0, 0.5, 3.0, 20.0])
def test_the_same_token_as_by_torch(search: NativeSearch, count: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(count)
    ids = torch.randperm(3 * count, generator=generator)[:count].sort().values
    for position in range(40):
        logits = torch.randn(count, generator=generator) * scale
        logits[1:][torch.rand(count - 1, generator=generator) < 0.3] = NEVER
        assert sample(logits, ids, 77, position, search) == sample(logits, ids, 77, position)


@given(
    st.lists(st.one_of(st.just(NEVER), st.floats(-30, 30, width=32)), min_size=1, max_size=70).filter(
        lambda row: max(row) > NEVER
    ),
    st.integers(0, 2**64 - 1),
    st.integers(0, 100_000),
)
@settings(max_examples=300)
def test_the_best_is_among_what_it_finds(search: NativeSearch, row: list[float], key: int, position: int) -> None:
    logits, ids = torch.tensor(row), torch.arange(len(row))
    found = search(logits, ids, key, position)
    assert found.tolist() == sorted(set(found.tolist()))
    assert sample(logits, ids, key, position) in ids[found].tolist()


def test_few_are_left_to_decide_among(search: NativeSearch) -> None:
    logits, ids = torch.zeros(49_152), torch.arange(49_152)
    for position in range(20):
        assert len(search(logits, ids, 5, position)) <= 3 * len(near_best(logits, ids, 5, position)) + 5
