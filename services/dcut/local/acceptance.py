"""How often drafts stand, by drafter kind, class of request and position.

Legend: J draft positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from services.dcut.costs.steps import Floats
from services.dcut.local.selection import Counts
from services.requests.speculation import MAX_DRAFT_TOKENS

_FORGET = 0.99  # of earlier rounds, with every new one
_UNSEEN = 0.7  # a drafter that has not been seen is worth a try
_UNSEEN_WEIGHT = 2.0  # observations that this is worth to a kind
_KIND_WEIGHT = 8.0  # and the kind to a class


@dataclass(slots=True)
class _Rates:
    verified_J: Floats = field(default_factory=lambda: np.zeros(MAX_DRAFT_TOKENS))
    accepted_J: Floats = field(default_factory=lambda: np.zeros(MAX_DRAFT_TOKENS))

    def add(self, kept_N: Counts, accepted_N: Counts) -> None:
        fade = _FORGET ** len(kept_N)
        self.verified_J = fade * self.verified_J + reached(np.minimum(kept_N, accepted_N + 1))
        self.accepted_J = fade * self.accepted_J + reached(accepted_N)

    def mean(self, prior_J: Floats, weight: float) -> Floats:
        mean: Floats = (self.accepted_J + weight * prior_J) / (self.verified_J + weight)
        return mean

    def chained(self, first: float, weight: float) -> Floats:
        """Like `mean`, with the estimate of the position before as prior: what was never reached is like the last."""
        means, prior = [], first
        for accepted, verified in zip(self.accepted_J.tolist(), self.verified_J.tolist(), strict=True):
            prior = (accepted + weight * prior) / (verified + weight)
            means.append(prior)
        return np.array(means)


class Acceptance:
    """Probability that the draft at a position is accepted, given that those before it were."""

    def __init__(self) -> None:
        self._kinds: dict[str, _Rates] = {}
        self._classes: dict[tuple[str, str], _Rates] = {}
        self._elsewhere: Mapping[tuple[str, str], Floats] = {}

    def follow(self, acceptance: Mapping[tuple[str, str], Floats]) -> None:
        """What the whole fleet has seen: by kind and class, [J]. It stands in for what was seen little here."""
        self._elsewhere = acceptance

    def observe(self, kind: str, task_class: str, kept_N: Counts, accepted_N: Counts) -> None:
        """Verified drafts: of `kept` tokens, at least one, the first `accepted` stood."""
        self._kinds.setdefault(kind, _Rates()).add(kept_N, accepted_N)
        self._classes.setdefault((kind, task_class), _Rates()).add(kept_N, accepted_N)

    def conditional(self, kind: str, task_class: str) -> Floats:
        """[J], of a kind and class; what was seen little is filled from the fleet or the kind, a new kind from hope."""
        of_kind, of_class = self._kinds.get(kind), self._classes.get((kind, task_class))
        mean_J = self._elsewhere.get((kind, task_class))
        if mean_J is None:
            if of_kind is None:
                return np.full(MAX_DRAFT_TOKENS, _UNSEEN)
            mean_J = of_kind.chained(_UNSEEN, _UNSEEN_WEIGHT)
        return mean_J if of_class is None else of_class.mean(mean_J, _KIND_WEIGHT)

    def known(self) -> tuple[tuple[str, str], ...]:
        """Kinds and classes that have been seen."""
        return tuple(self._classes)


def reached(counts_N: Counts) -> Floats:
    """How many of the counts are above 0, 1, 2, ...: [J]."""
    by_count = np.bincount(counts_N, minlength=MAX_DRAFT_TOKENS + 1)[: MAX_DRAFT_TOKENS + 1]
    reached: Floats = by_count[::-1].cumsum()[::-1][1:].astype(np.float64)
    return reached
