"""The choice of a token from processed logits and the position's noise."""

from __future__ import annotations

import torch

from services.sampling.noise import gumbel, uniform_bits

# The winner minimises E / p. fp32 cannot tell the largest u apart, nor from 1, so there E (11 to 23) counts as 11;
# fp32 then finds the winner within this factor, and fp64 decides among those.
_LARGEST_U = 1 - 2.0**-16
_SLACK = 2.1


def greedy(logits_QV: torch.Tensor) -> torch.Tensor:
    """The most likely token of each row, the lowest id among equals: int64 [Q]."""
    return logits_QV.argmax(-1)


def sample(logits_M: torch.Tensor, ids_M: torch.Tensor, key: int, position: int) -> int:
    """argmax over `ids_M` (ascending) of logit + Gumbel noise; ties go to the lowest id.

    `logits_M`: fp32, already divided by the temperature and stripped of what top-k,
    top-p and min-p cut, or -inf there.
    """
    bits_M = uniform_bits(key, position, ids_M)
    u_M = ((bits_M.float() + 0.5) * 2.0**-32).clamp_(max=_LARGEST_U)
    ratio_M = -torch.log1p(-u_M) / torch.softmax(logits_M, -1)
    near = torch.nonzero(ratio_M <= ratio_M.min() * _SLACK)[:, 0]
    scores = logits_M[near].double() + gumbel(bits_M[near]).double()
    return int(ids_M[near[scores.argmax()]])
