"""Lookup drafting inside the target process."""

from __future__ import annotations

from collections.abc import Sequence

from services.drafters.lookup.config import LookupConfig
from services.drafters.lookup.index import SuffixIndex
from services.target.drafting.interface import Guess


class LocalLookup:
    """One sequence's index over its committed tokens."""

    def __init__(self, config: LookupConfig, tokens: Sequence[int]) -> None:
        self._tokens = tokens
        self._index = SuffixIndex(config)
        self._repeated = 0, 0  # at that many tokens

    def repeated(self) -> int:
        """Newest tokens that have stood together before, at most max_ngram."""
        if self._repeated[0] != len(self._tokens):
            self._index.extend(self._tokens[len(self._index) :])
            match = self._index.match()
            self._repeated = len(self._tokens), 0 if match is None else match.length
        return self._repeated[1]

    def draft(self, max_draft: int) -> Guess | None:
        self._index.extend(self._tokens[len(self._index) :])
        tokens, probabilities = self._index.propose(max_draft)
        return Guess(tokens, probabilities) if tokens else None
