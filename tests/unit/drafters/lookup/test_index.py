"""The suffix index against a search by brute force."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.drafters.lookup.config import LookupConfig
from services.drafters.lookup.index import Match, SuffixIndex

configs = st.builds(
    lambda low, more, candidates: LookupConfig(min_ngram=low, max_ngram=low + more, max_candidates=candidates),
    st.integers(1, 4),
    st.integers(0, 6),
    st.sampled_from([1, 2, 1000]),
)
texts = st.lists(st.integers(0, 3), max_size=80)  # few ids: many matches


def agreement(tokens: list[int], place: int, limit: int) -> int:
    length = 0
    while length < min(limit, place) and tokens[place - 1 - length] == tokens[len(tokens) - 1 - length]:
        length += 1
    return length


def brute_force(tokens: list[int], config: LookupConfig) -> Match | None:
    places = [
        place
        for place in range(len(tokens) - 1, 0, -1)
        if agreement(tokens, place, config.max_ngram) >= config.min_ngram
    ][: config.max_candidates]
    best = max(places, key=lambda place: (agreement(tokens, place, config.max_ngram), place), default=None)
    return None if best is None else Match(best, agreement(tokens, best, config.max_ngram))


@given(configs, texts, st.integers(0, 80))
def test_match_is_the_longest_then_newest(config: LookupConfig, tokens: list[int], split: int) -> None:
    index = SuffixIndex(config)
    index.extend(tokens[:split])
    index.extend(tokens[split:])
    assert index.match() == brute_force(tokens, config)


@given(configs, texts, st.integers(0, 12))
def test_proposal_continues_the_match_and_repeats_a_period(config: LookupConfig, tokens: list[int], count: int) -> None:
    index = SuffixIndex(config)
    index.extend(tokens)
    draft, probabilities = index.propose(count)
    match = brute_force(tokens, config)
    if match is None:
        assert (draft, probabilities) == ((), ())
        return
    grown = list(tokens)
    for position in range(count):
        grown.append(grown[match.next + position])
    assert list(draft) == grown[len(tokens) :]
    assert len(probabilities) == count
    assert all(0 < p < 1 for p in probabilities)
    assert list(probabilities) == sorted(probabilities), "each is given that those before were right"


def test_longer_matches_are_believed_more() -> None:
    def believed(tokens: list[int]) -> float:
        index = SuffixIndex(LookupConfig())
        index.extend(tokens)
        return index.propose(1)[1][0]

    assert believed([1, 2, 3, 4, 5, 9, 1, 2, 3, 4, 5]) > believed([7, 8, 3, 4, 5, 9, 1, 2, 0, 4, 5])


@pytest.mark.parametrize("tokens", [[], [1], [1, 1], [1, 2, 3, 4, 5, 6]])
def test_nothing_is_proposed_where_nothing_repeats(tokens: list[int]) -> None:
    index = SuffixIndex(LookupConfig(min_ngram=2))
    index.extend(tokens)
    assert index.propose(8) == ((), ())


def test_ids_of_32_bits_are_told_apart() -> None:
    index = SuffixIndex(LookupConfig(min_ngram=2))
    index.extend([2**32 - 1, 5, 7, 0, 5])
    assert index.propose(4) == ((), ())
    index.extend([9, 2**32 - 1, 5])
    assert index.propose(2)[0] == (7, 0)


def test_max_ngram_below_min_ngram_is_refused() -> None:
    with pytest.raises(ValueError, match=r"max_ngram: 2 is out of range; it must be at least min_ngram \(3\)"):
        LookupConfig(min_ngram=3, max_ngram=2)
