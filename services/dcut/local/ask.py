"""Ask: which sequences are worth a draft, and how long a one. Pure.

What a draft will be is not known yet, but recent ones of the same sequence are: each is one
scenario. What will be kept of it is known too, as a threshold: those rows whose probability of
being accepted is at least their price. So for every threshold, every longest draft and every
number of sequences asked (the most profitable first), tokens per second can be computed, and
the best is taken; asking nobody is one of the choices.

Legend: N sequences, Q scenarios, J draft positions, T thresholds, L longest drafts, M = N asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from services.dcut.costs.steps import Floats
from services.dcut.local.selection import Counts

_THRESHOLDS = np.array([0.02, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8])
_LENGTHS = (1, 2, 3, 5, 7, 11, 16)
_MARGIN = 1.01  # a gain below 1% is within what the tables are wrong by

StepSeconds = Callable[[Floats], Floats]  # from decoding rows, of any shape
DraftSeconds = Callable[[int, Floats, Floats], Floats]  # from source, sequences asked of it, longest draft


def choose_lengths(
    survival_NQJ: Floats,
    sources_N: Sequence[int],
    batch: int,
    step_seconds: StepSeconds,
    draft_seconds: DraftSeconds,
    hidden_s: float = 0.0,
    *,
    proportional: bool = False,
) -> Counts:
    """Draft tokens to ask for each sequence, 0 for those that are not worth one.

    survival_NQJ   s of each scenario, 0 past what a sequence may be asked
    sources_N      number of the drafter kind that drafts for the sequence
    batch          sequences in the next step, these and others: each emits a token in any case
    proportional   for the geometric mean of the sequences' tokens, see `keep_proportional`
    hidden_s       what the target does anyway while it waits
    Rounds go in step: all wait for the slowest kind.
    """
    lengths_L = np.array(sorted({min(length, survival_NQJ.shape[2]) for length in _LENGTHS}))
    lengths_N: Counts = np.zeros(len(survival_NQJ), np.int64)
    if not len(survival_NQJ) or not lengths_L[-1]:
        return lengths_N
    kept_TNQJ = survival_NQJ[None] >= _THRESHOLDS[:, None, None, None]
    gain_TNL = _up_to(np.where(kept_TNQJ, survival_NQJ[None], 0.0).mean(2), lengths_L)
    rows_TNL = _up_to(kept_TNQJ.mean(2), lengths_L)
    order_TNL = np.argsort(_THRESHOLDS[:, None, None] * rows_TNL - gain_TNL, axis=1, kind="stable")
    gain_TML = np.take_along_axis(gain_TNL, order_TNL, 1)
    if proportional:
        tokens_TML = batch * np.exp(np.cumsum(np.log1p(gain_TML), axis=1) / batch)
    else:
        tokens_TML = batch + np.cumsum(gain_TML, axis=1)
    rows_TML = np.cumsum(np.take_along_axis(rows_TNL, order_TNL, 1), axis=1)
    wait_TML = _waits(np.asarray(sources_N)[order_TNL], lengths_L, draft_seconds)
    seconds_TML = step_seconds(batch + rows_TML) + np.maximum(wait_TML - hidden_s, 0.0)
    rate_TML = tokens_TML / seconds_TML
    best = np.unravel_index(int(np.argmax(rate_TML)), rate_TML.shape)
    if rate_TML[best] <= _MARGIN * batch / float(step_seconds(np.array(float(batch)))):
        return lengths_N
    threshold, asked, length = (int(index) for index in best)
    for sequence in order_TNL[threshold, : asked + 1, length]:
        # No longer than the best of its scenarios would be kept.
        reach = int(kept_TNQJ[threshold, sequence].any(0).sum())
        lengths_N[sequence] = min(reach, int(lengths_L[length]))
    return lengths_N


def _up_to(values_TNJ: Floats, lengths_L: Counts) -> Floats:
    """Sums over the first so many positions."""
    sums: Floats = np.cumsum(values_TNJ, axis=2)[:, :, lengths_L - 1]
    return sums


def _waits(sources_TML: Counts, lengths_L: Counts, draft_seconds: DraftSeconds) -> Floats:
    """Of the slowest source, when the first 1, 2, ... of the order are asked."""
    wait_TML: Floats = np.zeros(sources_TML.shape)
    for source in np.unique(sources_TML):
        asked_TML = np.cumsum(sources_TML == source, axis=1, dtype=np.float64)
        seconds_TML = draft_seconds(int(source), asked_TML, lengths_L.astype(np.float64))
        np.maximum(wait_TML, np.where(asked_TML > 0, seconds_TML, 0.0), out=wait_TML)
    return wait_TML
