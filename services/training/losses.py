"""Training losses and position weights, as pure functions.

p is the teacher's distribution, known at its K likeliest tokens; q the drafter's over its own
vocabulary of V' ids. Shapes: R rows, G draft positions in a row of accepted tokens.
alpha = sum_v min(p_v, q_v) is the best acceptance that verification can reach. Cut to the teacher's
top tokens it is a little too low, by at most the mass that they lack.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

import torch

LossName = Literal["ce", "kl", "tv", "lk"]
_LK_SHARPNESS = 3.0
_CACHED_ELEMENTS = 1 << 18


@dataclass(frozen=True, slots=True)
class Agreement:
    """What draft and teacher say of each row: [R] fp32 each, differentiable.

    ce_R     -log q(label); 0 where the label cannot be drafted
    kl_R     KL(p || q), p renormalised over its known tokens that can be drafted
    alpha_R  sum min(p, q), p as it is: mass that cannot be drafted is lost acceptance
    """

    ce_R: torch.Tensor
    kl_R: torch.Tensor
    alpha_R: torch.Tensor


def agreement(
    logits_RV: torch.Tensor, labels_R: torch.Tensor, top_ids_RK: torch.Tensor, top_logprobs_RK: torch.Tensor
) -> Agreement:
    """`labels_R` and `top_ids_RK` are draft ids, -1 for tokens that cannot be drafted.

    `top_logprobs_RK` are log p over the whole vocabulary.
    """
    known_RK = top_ids_RK >= 0
    asked = torch.cat((top_ids_RK, labels_R[:, None]), 1).clamp(min=0)
    logq_RK, logq_label_R1 = cast(torch.Tensor, LogProbs.apply(logits_RV, asked)).split((top_ids_RK.shape[1], 1), 1)
    p_RK = top_logprobs_RK.exp() * known_RK
    mass_R1 = p_RK.sum(-1, keepdim=True)
    renormalised_RK = p_RK / mass_R1.clamp(min=1e-20)
    logp_RK = torch.where(p_RK > 0, renormalised_RK.clamp(min=1e-30).log(), 0.0)
    kl_R = (renormalised_RK * (logp_RK - logq_RK)).sum(-1)
    alpha_R = torch.minimum(p_RK, logq_RK.exp() * known_RK).sum(-1)
    return Agreement(torch.where(labels_R >= 0, -logq_label_R1[:, 0], 0.0), kl_R, alpha_R)


class LogProbs(torch.autograd.Function):
    """logits_RV, ids_RK -> [R, K] fp32: log-softmax of each row at K ids.

    A few rows at a time, so that what is as wide as the vocabulary stays in the processor's cache.
    """

    @staticmethod
    def forward(ctx: Any, logits_RV: torch.Tensor, ids_RK: torch.Tensor) -> torch.Tensor:
        normaliser_R1 = torch.cat([rows.float().logsumexp(-1, keepdim=True) for rows in _few_rows(logits_RV)])
        ctx.save_for_backward(logits_RV, ids_RK, normaliser_R1)
        return logits_RV.gather(-1, ids_RK).float() - normaliser_R1

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        logits_RV, ids_RK, normaliser_R1 = ctx.saved_tensors
        (gradient_RK,) = gradients
        found_RV = torch.empty_like(logits_RV)
        parts = (found_RV, logits_RV, normaliser_R1, ids_RK, gradient_RK, -gradient_RK.sum(-1, keepdim=True))
        for found, logits, normaliser, ids, gradient, spread in zip(
            *(_few_rows(part, logits_RV.shape[1]) for part in parts), strict=True
        ):
            q = (logits.float() - normaliser).exp_().mul_(spread)
            found.copy_(q.scatter_add_(-1, ids, gradient))
        return found_RV, None


def _few_rows(x: torch.Tensor, width: int = 0) -> tuple[torch.Tensor, ...]:
    """Views of about a quarter of a million elements, or of as many rows as would be where they are `width` wide."""
    parts: tuple[torch.Tensor, ...] = x.split(max(1, _CACHED_ELEMENTS // (width or x.shape[1])))
    return parts


def row_loss(name: LossName, rows: Agreement) -> torch.Tensor:
    """[R]. LK leans on KL while the draft is poor and turns to TV as it agrees."""
    match name:
        case "ce":
            return rows.ce_R
        case "kl":
            return rows.kl_R
        case "tv":
            return 1 - rows.alpha_R
        case "lk":
            share_R = torch.exp(-_LK_SHARPNESS * rows.alpha_R.detach())
            return share_R * rows.kl_R + (1 - share_R) * (1 - rows.alpha_R)


def end_to_end_tv(alpha_RG: torch.Tensor, valid_RG: torch.Tensor) -> torch.Tensor:
    """[R]: 1 - (1/g) sum_j prod_{i<=j} alpha_i, over each row's own g valid positions, which lead it; 0 where g = 0."""
    survival_RG = (alpha_RG * valid_RG).cumprod(-1)
    count_R = valid_RG.sum(-1)
    return torch.where(count_R > 0, 1 - survival_RG.sum(-1) / count_R.clamp(min=1), 0.0)


def decayed_weights(count: int, scale: float) -> torch.Tensor:
    """[G]: exp(-(k - 1) / scale) for k = 1 .. G."""
    return torch.exp(-torch.arange(count, dtype=torch.float32) / scale)


def dpace_weights(ce_RG: torch.Tensor, valid_RG: torch.Tensor) -> torch.Tensor:
    """D-PACE [R, G], detached: how much each position adds to the expected accepted length.

    c = exp(-CE), smoothed to c/2 + 1/2; prefix products; the reverse cumulative sum of these.
    """
    confidence_RG = (0.5 * torch.exp(-ce_RG.detach()) + 0.5) * valid_RG
    prefix_RG = confidence_RG.cumprod(-1)
    return prefix_RG.flip(-1).cumsum(-1).flip(-1)


def mean_over(loss: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Weighted mean of all elements; 0 when nothing counts."""
    return (loss * weight).sum() / weight.sum().clamp(min=1e-6)
