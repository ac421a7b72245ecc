"""Longest-suffix matching over one growing sequence of tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from services.drafters.lookup.config import LookupConfig

_TOKEN_BITS = 32
_NONE = -1


@dataclass(frozen=True, slots=True)
class Match:
    """An earlier place whose preceding tokens equal the end of the sequence."""

    next: int  # index of the token that followed there
    length: int  # how many tokens agree, at most max_ngram


class SuffixIndex:
    """Finds where the end of a sequence has occurred before.

    Every run of `min_ngram` tokens is the head of a chain through its earlier
    occurrences, so appending costs O(1) a token and a search compares at most
    `max_candidates` places. The longest match wins; the newest among equals.
    """

    def __init__(self, config: LookupConfig) -> None:
        self._config = config
        self._tokens: list[int] = []
        self._newest: dict[int, int] = {}  # run of min_ngram tokens -> index after its newest occurrence
        self._older: list[int] = []  # index after an occurrence -> the one before it
        self._run = 0
        self._run_mask = (1 << (_TOKEN_BITS * config.min_ngram)) - 1

    def __len__(self) -> int:
        return len(self._tokens)

    def extend(self, tokens: Iterable[int]) -> None:
        """Appends token ids, each below 2**32."""
        minimum, mask = self._config.min_ngram, self._run_mask
        known, newest, older, run = self._tokens, self._newest, self._older, self._run
        for token in tokens:
            known.append(token)
            run = ((run << _TOKEN_BITS) | token) & mask
            end = len(known)
            if end < minimum:
                older.append(_NONE)
                continue
            older.append(newest.get(run, _NONE))
            newest[run] = end
        self._run = run

    def match(self) -> Match | None:
        """The best earlier place that agrees with the last `min_ngram` tokens or more."""
        tokens, config = self._tokens, self._config
        end = len(tokens)
        if end <= config.min_ngram:
            return None
        place = self._older[end - 1]
        best_next, best_length = _NONE, 0
        for _ in range(config.max_candidates):
            if place == _NONE:
                break
            length = self._agreement(place, end)
            if length > best_length:
                best_next, best_length = place, length
                if length >= config.max_ngram:
                    break
            place = self._older[place - 1]
        return Match(best_next, best_length) if best_length else None

    def _agreement(self, place: int, end: int) -> int:
        """Tokens before `place` that equal those before `end`, given that min_ngram do."""
        tokens = self._tokens
        length = self._config.min_ngram
        limit = min(self._config.max_ngram, place)
        while length < limit and tokens[place - 1 - length] == tokens[end - 1 - length]:
            length += 1
        return length

    def propose(self, count: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """At most `count` tokens that followed the best match, and the probability that
        each is right given the ones before.

        A match that reaches the end of the sequence goes on into its own proposal, so
        that a period repeats.
        """
        match = self.match()
        if match is None or count <= 0:
            return (), ()
        draft = self._tokens[match.next : match.next + count]
        period = len(self._tokens) - match.next
        for index in range(len(draft), count):
            draft.append(draft[index - period])
        doubt = self._config.doubt
        lengths = range(match.length, match.length + count)
        return tuple(draft), tuple(length / (length + doubt) for length in lengths)
