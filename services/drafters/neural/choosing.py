"""From a drafter's logits to its guess of what the target will choose."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from services.drafters.drafter import Opening
from services.sampling.choice import greedy, sample
from services.target.sampling.processors import survivors

_NEGLIGIBLE = 11.5  # of logits: 1e-5 of the likeliest token's probability


def choose(
    logits_QU: torch.Tensor, openings: Sequence[Opening], positions: Sequence[int], d2t_U: torch.Tensor
) -> tuple[list[int], list[float]]:
    """Each row's token, an id of the target, and the probability that the drafter gives it.

    logits_QU fp32 over draft ids, one row for each opening; d2t_U ascending, so that ties go
    to the lowest id of the target. At a temperature the position's noise decides, as it will
    in the target.
    """
    count = len(openings)
    tokens, shares = [0] * count, [0.0] * count
    plain = [row for row in range(count) if openings[row].temperature <= 0]
    if plain:
        rows_PU = logits_QU if len(plain) == count else logits_QU[plain]
        best_P = greedy(rows_PU)
        likely, given = d2t_U[best_P].tolist(), rows_PU.softmax(-1).gather(1, best_P[:, None])[:, 0].tolist()
        for row, token, share in zip(plain, likely, given, strict=True):
            tokens[row], shares[row] = token, share
    for row, opening in enumerate(openings):
        if opening.temperature > 0:
            tokens[row], shares[row] = _sampled(logits_QU[row] / opening.temperature, opening, positions[row], d2t_U)
    return tokens, [min(max(share, 0.0), 1.0) for share in shares]


def _sampled(logits_M: torch.Tensor, opening: Opening, position: int, ids_M: torch.Tensor) -> tuple[int, float]:
    # Noise for the whole vocabulary costs more than the rest of a step, and the rare are hardly ever right.
    likely_K = torch.nonzero(logits_M > logits_M.max() - _NEGLIGIBLE)[:, 0]
    logits_M, ids_M = logits_M[likely_K], ids_M[likely_K]
    if opening.top_k or opening.top_p < 1.0:
        kept_K = survivors(logits_M, 0.0, opening.top_k, opening.top_p)
        logits_M, ids_M = logits_M[kept_K], ids_M[kept_K]
    token = sample(logits_M, ids_M, opening.noise_key, position)
    return token, float(logits_M.softmax(-1)[torch.searchsorted(ids_M, token)])
