"""What a round of drafts costs: the time from ask to answer, by kind, number of sequences and length."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from services.dcut.costs.steps import Floats

_FORGET = 0.98  # of the weight of earlier rounds, with every new one
_STALE_S = 2.0  # and with so much time between two: a drafter that was crowded then need not be so now
_PRIOR_WEIGHT = 0.05  # rounds that the prior is worth
# Seconds for: a round, a draft position, a sequence, both. A guess until the first answer.
_PRIOR = np.array([2e-3, 0.5e-3, 0.1e-3, 0.02e-3])
_NUM = len(_PRIOR)


@dataclass(frozen=True, slots=True)
class DraftWait:
    """One answered frame of asks."""

    kind: str
    sequences: int
    longest: int  # most draft tokens asked of one of them
    seconds: float  # from ask to answer, as the target sees it
    busy_s: float  # of it, in which the drafter computed
    at_s: float = 0.0  # when the answer came, on any clock


@dataclass(slots=True)
class _Fit:
    """Least squares with forgetting for the factors of the prior's terms, kept from being negative."""

    normal: Floats = field(default_factory=lambda: np.zeros((_NUM, _NUM)))
    moment: Floats = field(default_factory=lambda: np.zeros(_NUM))
    weight: float = 0.0
    coefficients: Floats = field(default_factory=_PRIOR.copy)
    mean_s: float = 0.0
    busy_s: float = 0.0
    last_s: float = 0.0

    def add(self, wait: DraftWait) -> None:
        terms = _PRIOR * (1.0, wait.longest, wait.sequences, wait.longest * wait.sequences)
        guess = float(terms.sum())  # large rounds must not outweigh small ones
        share = terms / guess
        forget = _FORGET * math.exp(-max(wait.at_s - self.last_s, 0.0) / _STALE_S)
        self.last_s = wait.at_s
        self.normal = forget * self.normal + np.outer(share, share)
        self.moment = forget * self.moment + share * (wait.seconds / guess)
        self.weight = forget * self.weight + 1.0
        rate = max(1.0 / self.weight, 0.05)
        self.mean_s += rate * (wait.seconds - self.mean_s)
        self.busy_s += rate * (wait.busy_s - self.busy_s)
        # The prior is added last, so that it keeps its weight: what is not seen for long stays determined.
        prior = _PRIOR_WEIGHT * np.eye(_NUM)
        self.coefficients = _PRIOR * _nonnegative(self.normal + prior, self.moment + _PRIOR_WEIGHT)


class DraftCosts:
    """T(kind, sequences, length) = a + b length + c sequences + d length sequences, learned from answers."""

    def __init__(self) -> None:
        self._fits: dict[str, _Fit] = {}

    def observe(self, wait: DraftWait) -> None:
        self._fits.setdefault(wait.kind, _Fit()).add(wait)

    def seconds(self, kind: str, sequences: npt.ArrayLike, longest: npt.ArrayLike) -> Floats:
        """Expected time from ask to answer; the arrays may have any shapes that broadcast."""
        a, b, c, d = self.terms(kind)
        n, k = np.asarray(sequences, np.float64), np.asarray(longest, np.float64)
        seconds: Floats = a + b * k + c * n + d * k * n
        return seconds

    def terms(self, kind: str) -> Floats:
        """The seconds a, b, c and d as expected now: [4]."""
        fit = self._fits.get(kind)
        return _PRIOR if fit is None else fit.coefficients

    def means(self) -> Mapping[str, tuple[float, float]]:
        """Smoothed seconds by kind: from ask to answer, and of them in which the drafter computed."""
        return {kind: (fit.mean_s, fit.busy_s) for kind, fit in self._fits.items()}


def _nonnegative(normal: Floats, moment: Floats) -> Floats:
    """Least squares with coefficients of at least 0: those that would be negative are set to 0 one by one."""
    active = np.ones(_NUM, bool)
    while True:
        solution = np.zeros(_NUM)
        solution[active] = np.linalg.solve(normal[np.ix_(active, active)], moment[active])
        worst = int(np.argmin(solution))
        if solution[worst] >= 0:
            return solution
        active[worst] = False
