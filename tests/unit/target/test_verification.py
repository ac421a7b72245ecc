from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.target.verification import count_accepted


@pytest.mark.parametrize(
    ("chosen", "drafts", "accepted"),
    [
        ([5], [], 0),
        ([5, 6, 7], [5, 6], 2),
        ([5, 6, 7], [5, 9], 1),
        ([5, 6, 7], [9, 6], 0),
        ([5], [9, 6], 0),  # rows after a rejected draft may not have been chosen at all
        ([5, 6], [5, 9, 7], 1),
    ],
)
def test_count_accepted(chosen: list[int], drafts: list[int], accepted: int) -> None:
    assert count_accepted(chosen, drafts) == accepted


TOKENS = st.integers(0, 2)


@given(st.lists(TOKENS, min_size=9, max_size=9), st.lists(TOKENS, max_size=8))
def test_what_is_emitted_is_the_targets_own_text(chosen: list[int], drafts: list[int]) -> None:
    accepted = count_accepted(chosen, drafts)
    assert drafts[:accepted] == chosen[:accepted]
    assert accepted == len(drafts) or drafts[accepted] != chosen[accepted]
