"""From a drafter's confidence to the probability that the target agrees, learned from what it accepted.

Legend: N sequences, J draft positions, B knots of confidence, F evenly spaced confidences, S sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from services.dcut.costs.steps import Floats
from services.dcut.local.selection import Counts
from services.requests.speculation import MAX_DRAFT_TOKENS

_KNOTS = np.array([0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0])
_NEAR_BB = np.exp(-(np.subtract.outer(np.arange(len(_KNOTS)), np.arange(len(_KNOTS))) ** 2) / 2.0)
_POSITION_PRIOR = 8.0  # observations that the mean over positions is worth to one of them
_IDENTITY_PRIOR = 4.0  # that the drafter's word is worth to that mean
_FORGET = 0.999  # of earlier observations of a position, with every new one
_BINS = 10
_FINE = 257


@dataclass(slots=True)
class CalibrationError:
    """Expected calibration error: mean |stated - observed| over bins of stated probability, by their share."""

    count_B: Floats = field(default_factory=lambda: np.zeros(_BINS))
    stated_B: Floats = field(default_factory=lambda: np.zeros(_BINS))
    accepted_B: Floats = field(default_factory=lambda: np.zeros(_BINS))

    def add(self, stated: Floats, accepted: Floats) -> None:
        fade = _FORGET ** len(stated)
        bins = np.minimum((stated * _BINS).astype(np.int64), _BINS - 1)
        for sums, values in (
            (self.count_B, np.ones_like(stated)),
            (self.stated_B, stated),
            (self.accepted_B, accepted),
        ):
            sums *= fade
            np.add.at(sums, bins, values)

    @property
    def value(self) -> float:
        """Between 0 and 1; 0 before anything was observed."""
        total = float(self.count_B.sum())
        return float(np.abs(self.stated_B - self.accepted_B).sum()) / total if total else 0.0


class _Map:
    """Piecewise linear in the confidence, one a position, pulled towards their mean and that to the identity."""

    def __init__(self) -> None:
        self._count_JB: Floats = np.zeros((MAX_DRAFT_TOKENS, len(_KNOTS)))
        self._accepted_JB: Floats = np.zeros((MAX_DRAFT_TOKENS, len(_KNOTS)))
        self.raw_error = CalibrationError()
        self.error = CalibrationError()

    def observe(self, stated: Floats, positions: Counts, accepted: Floats) -> None:
        fade_J1 = _FORGET ** np.bincount(positions, minlength=MAX_DRAFT_TOKENS)[:, None]
        right = np.clip(np.searchsorted(_KNOTS, stated), 1, len(_KNOTS) - 1)
        share = (stated - _KNOTS[right - 1]) / (_KNOTS[right] - _KNOTS[right - 1])
        for sums, values in ((self._count_JB, np.ones_like(accepted)), (self._accepted_JB, accepted)):
            sums *= fade_J1
            np.add.at(sums, (positions, right - 1), (1.0 - share) * values)
            np.add.at(sums, (positions, right), share * values)

    def fine(self) -> Floats:
        """Probability at each of the evenly spaced confidences: [J, F], never falling along F."""
        count_B = self._count_JB.sum(0)
        mean_B = _KNOTS + _shift(self._accepted_JB.sum(0) - count_B * _KNOTS, count_B, _IDENTITY_PRIOR)
        shift_JB = _shift(self._accepted_JB - self._count_JB * mean_B, self._count_JB, _POSITION_PRIOR)
        values_JB = _rising(np.clip(mean_B + shift_JB, 0.0, 1.0))
        fine: Floats = values_JB @ _HATS_BF
        return fine


def _shift(excess: Floats, count: Floats, prior: float) -> Floats:
    """By how much more than said was accepted, at each knot; knots without observations follow their neighbours."""
    shift: Floats = excess @ _NEAR_BB / (count @ _NEAR_BB + prior)
    return shift


def _rising(values_JB: Floats) -> Floats:
    """The mean of the least rising line above and the greatest below."""
    above = np.maximum.accumulate(values_JB, axis=1)
    below = np.minimum.accumulate(values_JB[:, ::-1], axis=1)[:, ::-1]
    rising: Floats = (above + below) / 2
    return rising


class Calibration:
    """One map for each source of confidences: a drafter's kind, greedy or sampled.

    Under shared noise at a temperature the drafter's probability of its token is not that of
    agreement, so the two are learned apart.
    """

    def __init__(self) -> None:
        self._maps: dict[tuple[str, bool], _Map] = {}
        self._index: dict[tuple[str, bool], int] = {}
        self._fine_SJF: Floats = np.stack([_IDENTITY_JF])  # of every source; the first is that of unknown ones

    def apply(self, sources_N: Sequence[tuple[str, bool]], stated_NJ: Floats) -> Floats:
        """Probability that each draft is accepted, given the ones before. `stated_NJ` between 0 and 1."""
        index_N = np.array([self._index.get(source, 0) for source in sources_N])
        at_NJ = (stated_NJ * (_FINE - 1) + 0.5).astype(np.int64)
        found: Floats = self._fine_SJF[index_N[:, None], np.arange(stated_NJ.shape[1]), at_NJ]
        return found

    def observe(self, source: tuple[str, bool], stated: Floats, positions: Counts, accepted: Floats) -> None:
        """Verified drafts whose predecessors were all accepted: 1 where it was accepted too, else 0.

        Positions count from 0.
        """
        if source not in self._maps:
            self._maps[source], self._index[source] = _Map(), len(self._fine_SJF)
            self._fine_SJF = np.concatenate((self._fine_SJF, [_IDENTITY_JF]))
        found, index = self._maps[source], self._index[source]
        at = (stated * (_FINE - 1) + 0.5).astype(np.int64)
        found.raw_error.add(stated, accepted)
        found.error.add(self._fine_SJF[index, positions, at], accepted)
        found.observe(stated, positions, accepted)
        self._fine_SJF[index] = found.fine()

    def errors(self) -> dict[tuple[str, bool], tuple[float, float]]:
        """Expected calibration error by source: of the drafter's word, and as corrected before it was known.

        To be called from any thread.
        """
        return {key: (found.raw_error.value, found.error.value) for key, found in list(self._maps.items())}


def _hats() -> Floats:
    """Weights of the knots at evenly spaced confidences: [B, F]."""
    at = np.linspace(0.0, 1.0, _FINE)
    hats: Floats = np.stack([np.interp(at, _KNOTS, row) for row in np.eye(len(_KNOTS))])
    return hats


_HATS_BF = _hats()
_IDENTITY_JF = np.tile(np.linspace(0.0, 1.0, _FINE), (MAX_DRAFT_TOKENS, 1))
