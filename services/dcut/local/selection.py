"""Keep: which offered draft rows are worth verifying in this step. Pure, exact, one sort and one sum.

Legend: N sequences with a draft, J draft positions, K draft rows kept in all.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from services.dcut.costs.steps import Floats

Counts = npt.NDArray[np.int64]

_QUARTERS = (0.25, 0.5, 0.75, 1.0)


def survival(confidences_NJ: Floats, lengths_N: Counts) -> Floats:
    """s[i, t]: probability that draft t of sequence i and all before it are accepted; 0 past its length."""
    offered_NJ = np.arange(confidences_NJ.shape[1]) < lengths_N[:, None]
    conditional_NJ: Floats = np.where(offered_NJ, np.clip(confidences_NJ, 0.0, 1.0), 0.0)
    products: Floats = np.multiply.accumulate(conditional_NJ, axis=1)
    return products


def keep_exact(survival_NJ: Floats, lengths_N: Counts, batch: int, seconds_K: Floats, spent_s: float = 0.0) -> Counts:
    """How many drafts of each sequence to verify: argmax over every K of (batch + S_K) / (spent_s + C_K).

    survival_NJ   as `survival` gives it, never rising along J
    lengths_N     drafts offered
    batch         anchors in the step, those of sequences without a draft too: each emits a token
    seconds_K     time of the step with K = 0, 1, 2, ... draft rows; its length bounds K
    spent_s       what the round has taken already, waiting for these drafts: over many rounds tokens
                  per second are highest where this sum is the denominator. With 0 it is the rule of D-cut.

    Because s never rises along a draft, and the sort is stable, what is kept is a prefix of every draft.
    Of equally good K the smallest is taken.
    """
    owners, ranked = _ranked(survival_NJ, lengths_N)
    gained_K = np.concatenate(([0.0], np.cumsum(ranked)))[: len(seconds_K)]
    best = int(np.argmax((batch + gained_K) / (spent_s + seconds_K[: len(gained_K)])))
    return np.bincount(owners[:best], minlength=len(lengths_N))


def keep_proportional(
    survival_NJ: Floats, lengths_N: Counts, batch: int, seconds_K: Floats, spent_s: float = 0.0
) -> Counts:
    """Like `keep_exact`, for the geometric mean of the sequences' tokens instead of their sum.

    A sequence that is fast makes room for the next one, and the slow ones gather: of requests that
    come in a given mix, most are served in the long run where a token counts by the share of its
    sequence's progress that it is. A row's value is what it adds to the logarithm of its sequence's
    tokens; that falls along a draft even faster than s, so one sort and one sum are still enough.
    """
    tokens_NJ = np.log1p(np.add.accumulate(survival_NJ, axis=1))
    values_NJ = np.diff(tokens_NJ, axis=1, prepend=0.0)
    owners, ranked = _ranked(values_NJ, lengths_N)
    gained_K = np.concatenate(([0.0], np.cumsum(ranked)))[: len(seconds_K)]
    best = int(np.argmax(gained_K / batch - np.log(spent_s + seconds_K[: len(gained_K)])))
    return np.bincount(owners[:best], minlength=len(lengths_N))


def keep_quarters(
    survival_NJ: Floats, lengths_N: Counts, batch: int, seconds_K: Floats, spent_s: float = 0.0
) -> Counts:
    """AngelSpec's own form, a baseline: a quarter, a half, three quarters or all of the offered rows, never none."""
    owners, ranked = _ranked(survival_NJ, lengths_N)
    gained_K = np.concatenate(([0.0], np.cumsum(ranked)))[: len(seconds_K)]
    choices = np.unique([min(int(np.ceil(part * len(ranked))), len(gained_K) - 1) for part in _QUARTERS])
    best = int(choices[np.argmax((batch + gained_K[choices]) / (spent_s + seconds_K[choices]))])
    return np.bincount(owners[:best], minlength=len(lengths_N))


def keep_all(lengths_N: Counts, limit: int) -> Counts:
    """Every draft, in order, as far as the step has room."""
    before_N = np.concatenate(([0], np.cumsum(lengths_N)[:-1]))
    kept: Counts = np.clip(limit - before_N, 0, lengths_N)
    return kept


def _ranked(values_NJ: Floats, lengths_N: Counts) -> tuple[Counts, Floats]:
    """All offered rows, the most valuable first: whose they are, and their values."""
    offered_NJ = np.arange(values_NJ.shape[1]) < lengths_N[:, None]
    owners, _ = np.nonzero(offered_NJ)  # by sequence, then by position
    offered = values_NJ[offered_NJ]
    order = np.argsort(-offered, kind="stable")
    return owners[order], offered[order]
