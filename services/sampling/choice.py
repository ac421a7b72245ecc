"""The choice of a token from processed logits and the position's noise."""

from __future__ import annotations

from collections.abc import Callable

import torch

from services.sampling.noise import gumbel, uniform_bits

# The winner minimises E / p. fp32 cannot tell the largest u apart, nor from 1, so there E (11 to 23) counts as 11;
# fp32 then finds the winner within this factor, and fp64 decides among those.
_LARGEST_U = 1 - 2.0**-16
SLACK = 2.1

# logits_M, ids_M, key, position -> indices, as `near_best`
Search = Callable[[torch.Tensor, torch.Tensor, int, int], torch.Tensor]


def greedy(logits_QV: torch.Tensor) -> torch.Tensor:
    """The most likely token of each row, the lowest id among equals: int64 [Q]."""
    return logits_QV.argmax(-1)


def near_best(logits_M: torch.Tensor, ids_M: torch.Tensor, key: int, position: int) -> torch.Tensor:
    """Ascending indices among which the largest logit + noise is: int64 [few]."""
    bits_M = uniform_bits(key, position, ids_M)
    u_M = ((bits_M.float() + 0.5) * 2.0**-32).clamp_(max=_LARGEST_U)
    ratio_M = -torch.log1p(-u_M) / torch.softmax(logits_M, -1)
    return torch.nonzero(ratio_M <= ratio_M.min() * SLACK)[:, 0]


def sample(logits_M: torch.Tensor, ids_M: torch.Tensor, key: int, position: int, search: Search = near_best) -> int:
    """argmax over `ids_M` (ascending) of logit + Gumbel noise; ties go to the lowest id.

    `logits_M`: fp32, already divided by the temperature and stripped of what top-k,
    top-p and min-p cut, or -inf there.
    """
    near = search(logits_M, ids_M, key, position)
    ids = ids_M[near]
    scores = logits_M[near].double() + gumbel(uniform_bits(key, position, ids)).double()
    return int(ids[scores.argmax()])
