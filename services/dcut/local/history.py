"""Recent drafts of each sequence, as the probabilities of their tokens: the scenarios for the next one.

Legend: S slots, one a sequence; Q scenarios; J draft positions. NaN: a position that was not asked.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from services.dcut.costs.steps import Floats
from services.requests.speculation import MAX_DRAFT_TOKENS

NUM_SCENARIOS = 8
_FIRST_SLOTS = 16


class DraftHistory:
    """A ring of scenarios a sequence; a new one starts with the latest of its group."""

    def __init__(self) -> None:
        self._rings_SQJ = _blank(_FIRST_SLOTS)
        self._next_S = np.zeros(_FIRST_SLOTS, np.int64)
        self._free = list(range(_FIRST_SLOTS))
        self._groups: dict[tuple[str, str], tuple[Floats, int]] = {}

    def open(self) -> int:
        """A slot for a new sequence."""
        if not self._free:
            size = len(self._rings_SQJ)
            self._rings_SQJ = np.concatenate((self._rings_SQJ, _blank(size)))
            self._next_S = np.concatenate((self._next_S, np.zeros(size, np.int64)))
            self._free = list(range(size, 2 * size))
        return self._free.pop()

    def close(self, slot: int) -> None:
        self._free.append(slot)

    def restart(self, slot: int, group: tuple[str, str]) -> None:
        """The sequence has another drafter: what its group's latest drafts were is all that is known."""
        known = self._groups.get(group)
        self._rings_SQJ[slot] = np.nan if known is None else known[0]

    def add(self, slots: list[int], groups: Sequence[tuple[str, str]], scenarios_NJ: Floats, weight: int = 1) -> None:
        """Drafts as they came, one a sequence, each in place of its `weight` oldest."""
        for _ in range(weight):
            at_N = self._next_S[slots]
            self._rings_SQJ[slots, at_N] = scenarios_NJ
            self._next_S[slots] = (at_N + 1) % NUM_SCENARIOS
        for group, row in {group: row for row, group in enumerate(groups)}.items():  # one a group will do
            ring_QJ, at = self._groups.get(group, (_blank(1)[0], 0))
            ring_QJ[at] = scenarios_NJ[row]
            self._groups[group] = ring_QJ, (at + 1) % NUM_SCENARIOS

    def scenarios(self, slots: list[int], length: int) -> Floats:
        """[N, Q, J] of those sequences, as far as `length` positions."""
        return self._rings_SQJ[slots][:, :, :length]


def _blank(slots: int) -> Floats:
    return np.full((slots, NUM_SCENARIOS, MAX_DRAFT_TOKENS), np.nan)
