"""How each kind of drafter is unrolled on a batch, and what its drafts are compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from services.drafters.dfly.model import DflyModel, block_labels
from services.drafters.mtp.model import MtpModel, step_labels
from services.training.batches import Batch
from services.training.config import StageConfig
from services.training.losses import (
    Agreement,
    agreement,
    decayed_weights,
    dpace_weights,
    end_to_end_tv,
    mean_over,
    row_loss,
)


@dataclass(frozen=True, slots=True)
class Unrolled:
    """Drafts of R rounds with G positions each, against the teacher; all [R, G].

    A round's valid positions lead it. `hits_RG`: the draft's likeliest token is the teacher's; looked at
    only where no gradient is wanted.
    """

    ce_RG: torch.Tensor
    kl_RG: torch.Tensor
    alpha_RG: torch.Tensor
    valid_RG: torch.Tensor
    hits_RG: torch.Tensor


class Unroller(Protocol):
    """One for each kind of drafter."""

    def unroll(self, batch: Batch, generator: torch.Generator) -> Unrolled:
        """Runs the drafter; the generator, on the CPU, decides what is drawn."""


class MtpUnroller:
    def __init__(self, model: MtpModel, final_norm_D: torch.Tensor | None = None) -> None:
        """`final_norm_D`: of the target, where the drafter reads hidden states after it."""
        self._model, self._final_norm_D = model, final_norm_D

    def unroll(self, batch: Batch, generator: torch.Generator) -> Unrolled:
        steps = self._model.config.num_steps
        hidden_BSD = batch.hidden_BSD
        if self._final_norm_D is not None:
            norm_D, eps = self._final_norm_D.to(hidden_BSD), self._model.config.rms_norm_eps
            hidden_BSD = torch.nn.functional.rms_norm(hidden_BSD, norm_D.shape, norm_D, eps)
        is_round_BS = step_labels(batch.tokens_BS, batch.documents_BS, 0)[1] & _ahead(batch.supervised_BS, 2)
        rows_BM, is_real_BM = _packed(is_round_BS)
        outputs = self._model.train_forward(
            batch.tokens_BS, hidden_BSD, steps, batch.documents_BS, batch.positions_BS, rows_BM
        )
        row, at = is_round_BS.nonzero(as_tuple=True)
        columns = []
        for step, y_BMD in enumerate(outputs):
            _, reached_BS = step_labels(batch.tokens_BS, batch.documents_BS, step)
            valid_R = (reached_BS & _ahead(batch.supervised_BS, step + 2))[is_round_BS]
            columns.append(_compare(self._model.logits(y_BMD[is_real_BM]), batch, (row, at + step + 1), valid_R))
        return _stacked(columns)


class DflyUnroller:
    def __init__(self, model: DflyModel, anchors: int) -> None:
        self._model, self._anchors = model, anchors

    def unroll(self, batch: Batch, generator: torch.Generator) -> Unrolled:
        assert batch.features_BSTD is not None
        size = self._model.config.block_size
        anchors_BA, is_anchor_BA = draw_anchors(batch, self._anchors, generator)
        _, corrected = self._model.train_forward(
            batch.tokens_BS, batch.features_BSTD, anchors_BA, batch.documents_BS, batch.positions_BS
        )
        _, inside = block_labels(batch.tokens_BS, batch.documents_BS, anchors_BA, size)
        rows_B1 = torch.arange(anchors_BA.shape[0], device=anchors_BA.device)[:, None].expand_as(anchors_BA)
        columns = []
        last = batch.tokens_BS.shape[1] - 1
        for slot in range(1, size):
            label_BA = (anchors_BA + slot).clamp(max=last)
            valid_BA = inside[..., slot - 1] & is_anchor_BA & batch.supervised_BS[rows_B1, label_BA]
            at = (rows_B1.flatten(), (anchors_BA + slot - 1).clamp(max=last - 1).flatten())
            logits = self._model.logits(corrected[:, :, slot - 1].flatten(0, 1))
            columns.append(_compare(logits, batch, at, valid_BA.flatten()))
        return _stacked(columns)


def draw_anchors(batch: Batch, count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """[B, count] positions before a supervised token, with something before them; and which are real.

    Rows with too few repeat some.
    """
    same_BS = _ahead(batch.documents_BS, 1) == batch.documents_BS
    fit_BS = (same_BS & _ahead(batch.supervised_BS, 1) & (batch.positions_BS > 0)).cpu()
    has_any_B = fit_BS.any(-1)
    # Rows without any draw from everywhere, and nothing there counts.
    weight_BS = torch.where(has_any_B[:, None], fit_BS.float(), 1.0)
    anchors_BA = torch.multinomial(weight_BS, count, replacement=True, generator=generator)
    device = batch.tokens_BS.device
    return anchors_BA.to(device), has_any_B[:, None].expand_as(anchors_BA).to(device)


def loss_of(unrolled: Unrolled, stage: StageConfig, decay_scale: float) -> torch.Tensor:
    """The scalar that a stage minimises."""
    valid_RG = unrolled.valid_RG.float()
    if stage.loss == "end_to_end_tv":
        return mean_over(end_to_end_tv(unrolled.alpha_RG, valid_RG), valid_RG[:, 0])
    match stage.weighting:
        case "uniform":
            weight_RG = valid_RG
        case "decay":
            weight_RG = valid_RG * decayed_weights(valid_RG.shape[1], decay_scale).to(valid_RG.device)
        case "dpace":
            weight_RG = valid_RG * dpace_weights(unrolled.ce_RG, valid_RG)
    rows = Agreement(unrolled.ce_RG, unrolled.kl_RG, unrolled.alpha_RG)
    return mean_over(row_loss(stage.loss, rows), weight_RG)


def _compare(
    logits_RV: torch.Tensor, batch: Batch, at: tuple[torch.Tensor, torch.Tensor], valid_R: torch.Tensor
) -> tuple[Agreement, torch.Tensor, torch.Tensor]:
    """`at`: where the teacher's distribution of the drafted token is found; the token itself comes after it."""
    row, column = at[0], at[1].clamp(max=batch.tokens_BS.shape[1] - 2)
    top_ids_RK = batch.top_ids_BSK[row, column]
    rows = agreement(logits_RV, batch.labels_BS[row, column + 1], top_ids_RK, batch.top_logprobs_BSK[row, column])
    # Training itself has no use for them, and they cost as much as a small product.
    hits_R = torch.zeros_like(valid_R)
    if not torch.is_grad_enabled():
        hits_R = (logits_RV.argmax(-1) == top_ids_RK[:, 0]) & valid_R
    return rows, valid_R, hits_R


def _stacked(columns: list[tuple[Agreement, torch.Tensor, torch.Tensor]]) -> Unrolled:
    return Unrolled(
        torch.stack([rows.ce_R for rows, _, _ in columns], 1),
        torch.stack([rows.kl_R for rows, _, _ in columns], 1),
        torch.stack([rows.alpha_R for rows, _, _ in columns], 1),
        torch.stack([valid for _, valid, _ in columns], 1),
        torch.stack([hits for _, _, hits in columns], 1),
    )


def _packed(chosen_BS: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[B, M] the chosen positions of each row in their order, M at least 1; and which of them are real."""
    counts_B = chosen_BS.sum(-1)
    width = max(int(counts_B.max()), 1)
    rows_BM = torch.argsort((~chosen_BS).to(torch.uint8), dim=-1, stable=True)[:, :width]
    return rows_BM, torch.arange(width, device=chosen_BS.device) < counts_B[:, None]


def _ahead(x_BS: torch.Tensor, by: int) -> torch.Tensor:
    """x_{j+by} at j; False or -1 past the end."""
    fill = False if x_BS.dtype == torch.bool else -1
    return torch.nn.functional.pad(x_BS, (0, by), value=fill)[:, by:]
