"""Log-probabilities as the model gives them, before any sampling control."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]  # (token, logprob), the likeliest first


def token_logprobs(logits_V: torch.Tensor, token: int, count: int) -> TokenLogprobs:
    """`count` alternatives beside the token's own logprob."""
    values_V = torch.log_softmax(logits_V.float(), -1)
    top: tuple[tuple[int, float], ...] = ()
    if count:
        values, ids = values_V.topk(count)
        top = tuple(zip(ids.tolist(), values.tolist(), strict=True))
    return TokenLogprobs(token, float(values_V[token]), top)
