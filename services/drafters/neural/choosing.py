"""From a drafter's logits to its guess of what the target will choose."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from services.drafters.drafter import Opening
from services.sampling.choice import greedy, sample
from services.target.sampling.processors import survivors


def choose(
    logits_QU: torch.Tensor, openings: Sequence[Opening], positions: Sequence[int], d2t_U: torch.Tensor
) -> tuple[list[int], list[float]]:
    """Each row's token, an id of the target, and the probability that the drafter gives it.

    logits_QU fp32 over draft ids, one row for each opening; d2t_U ascending, so that ties go
    to the lowest id of the target. At a temperature the position's noise decides, as it will
    in the target.
    """
    best_Q = greedy(logits_QU)
    share_Q = (logits_QU.gather(1, best_Q[:, None])[:, 0] - logits_QU.logsumexp(-1)).exp()
    tokens, shares = d2t_U[best_Q].tolist(), share_Q.tolist()
    for row, (opening, position) in enumerate(zip(openings, positions, strict=True)):
        if opening.temperature > 0:
            tokens[row], shares[row] = _sampled(logits_QU[row] / opening.temperature, opening, position, d2t_U)
    return tokens, [min(max(share, 0.0), 1.0) for share in shares]


def _sampled(logits_U: torch.Tensor, opening: Opening, position: int, d2t_U: torch.Tensor) -> tuple[int, float]:
    kept_M = survivors(logits_U, 0.0, opening.top_k, opening.top_p)
    logits_M, ids_M = logits_U[kept_M], d2t_U[kept_M]
    token = sample(logits_M, ids_M, opening.noise_key, position)
    at = int(torch.searchsorted(ids_M, token))
    return token, float((logits_M[at] - logits_M.logsumexp(-1)).exp())
