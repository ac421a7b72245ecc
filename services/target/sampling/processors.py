"""What changes the logits of one row before a token is chosen. Each works in place on fp32 [V]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

_NEVER = float("-inf")


def add_bias(logits_V: torch.Tensor, bias: Mapping[int, float]) -> None:
    ids = torch.tensor(list(bias), device=logits_V.device)
    logits_V[ids] += torch.tensor(list(bias.values()), dtype=logits_V.dtype, device=logits_V.device)


def forbid(logits_V: torch.Tensor, ids: Sequence[int]) -> None:
    logits_V[torch.tensor(ids, device=logits_V.device)] = _NEVER


def keep_only(logits_V: torch.Tensor, raw_V: torch.Tensor, allowed_V: torch.Tensor) -> torch.Tensor:
    """Forbids all but the allowed. Where everything allowed is forbidden already, the raw logits decide among it."""
    allowed_V = allowed_V.to(logits_V.device)
    if not bool((logits_V[allowed_V] > _NEVER).any()):
        logits_V = raw_V.clone()
    return logits_V.masked_fill_(~allowed_V, _NEVER)


def banned_next(bad_words: Sequence[Sequence[int]], output: Sequence[int]) -> list[int]:
    """Tokens that would complete a bad word after `output`."""
    return [
        word[-1]
        for word in bad_words
        if len(word) == 1 or (len(output) >= len(word) - 1 and list(output[-(len(word) - 1) :]) == list(word[:-1]))
    ]


def penalise(
    logits_V: torch.Tensor,
    prompt_ids: frozenset[int],
    output_counts: Mapping[int, int],
    repetition: float,
    presence: float,
    frequency: float,
) -> None:
    """Repetition over prompt and output (multiplicative); presence and frequency over the output (additive)."""
    device = logits_V.device
    if repetition != 1.0:
        seen = torch.tensor(sorted(prompt_ids | output_counts.keys()), device=device)
        values = logits_V[seen]
        logits_V[seen] = torch.where(values > 0, values / repetition, values * repetition)
    if output_counts and (presence or frequency):
        ids = torch.tensor(list(output_counts), device=device)
        counts = torch.tensor(list(output_counts.values()), dtype=logits_V.dtype, device=device)
        logits_V[ids] -= presence + frequency * counts


def survivors(logits_V: torch.Tensor, min_p: float, top_k: int, top_p: float) -> torch.Tensor:
    """Ascending ids that min-p, then top-k, then top-p leave, or all of them.

    Among equal logits the lowest ids stay.
    """
    vocabulary = logits_V.shape[0]
    if min_p > 0.0:
        floor = logits_V.max() + torch.log(torch.tensor(min_p))
        logits_V.masked_fill_(logits_V < floor, _NEVER)
    k = min(top_k, vocabulary) if top_k > 0 else vocabulary
    if k == vocabulary and top_p >= 1.0:
        if min_p > 0.0:
            return torch.nonzero(logits_V > _NEVER)[:, 0]
        return torch.arange(vocabulary, device=logits_V.device)
    values_K = _largest(logits_V, k, top_p)
    if top_p < 1.0:
        before = values_K.softmax(-1).cumsum(-1) if k < vocabulary else _mass(values_K, logits_V)
        # A token stays while the mass before it is below top_p; the first always does.
        k = 1 + int((before[:-1] < top_p).sum())
    least = values_K[k - 1]
    if least == _NEVER:  # fewer are left than k
        return torch.nonzero(logits_V > _NEVER)[:, 0]
    above = torch.nonzero(logits_V > least)[:, 0]
    equal = torch.nonzero(logits_V == least)[: k - above.shape[0], 0]
    return torch.cat((above, equal)).sort().values


def _largest(logits_V: torch.Tensor, k: int, top_p: float) -> torch.Tensor:
    """The k largest logits in descending order, or as many of them as surely hold top_p of the mass."""
    if k < logits_V.shape[0]:
        return logits_V.topk(k).values
    few = logits_V.topk(min(1024, k)).values
    if _mass(few, logits_V)[-1] >= top_p:
        return few
    return logits_V.sort(descending=True).values


def _mass(values_K: torch.Tensor, logits_V: torch.Tensor) -> torch.Tensor:
    """Cumulative probability of the largest logits under the whole row."""
    return (values_K - torch.logsumexp(logits_V, -1)).exp().cumsum(-1)
