"""MTP: one decoder layer that continues from the target's last hidden state.

    x_j = W_eh [ RMS_e(E[t_{j+1}]) ; RMS_h(h_j) ]
    y_j = RMS_final(Layer(x)_j),  logits = y_j W_lm^T  -> predicts t_{j+2}

Shapes: B packed rows of documents, S positions, M of them drafted from, D hidden size, V' draft vocabulary.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from services.drafters.mtp.config import MtpConfig
from services.drafters.neural.frozen import TargetFolder, TargetParts, Vocabulary
from services.drafters.neural.layer import DecoderLayer, RMSNorm, rotary_angles

_MIX = 0.7  # of W_eh at the start: both halves are normed, so that their sum keeps the size of each


class MtpModel(nn.Module):
    def __init__(self, config: MtpConfig, parts: TargetParts, d2t: torch.Tensor) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.config = config
        self.vocabulary = Vocabulary(parts, d2t)
        self.enorm = RMSNorm(hidden, eps)
        self.hnorm = RMSNorm(hidden, eps)
        self.eh_proj = nn.Linear(2 * hidden, hidden, bias=False)
        self.layer = DecoderLayer(config)
        self.final_layernorm = RMSNorm(hidden, eps)

    @torch.no_grad()
    def start_from(self, target: TargetFolder) -> None:
        """Takes the target's last layer and final norm, and W_eh = 0.7 [I | I]."""
        self.layer.load_state_dict(target.layer(target.config.num_hidden_layers - 1))
        self.final_layernorm.weight.copy_(target.final_norm())
        identity = torch.eye(self.config.hidden_size)
        self.eh_proj.weight.copy_(_MIX * torch.cat((identity, identity), 1))

    def train_forward(
        self,
        tokens_BS: torch.Tensor,
        hidden_BSD: torch.Tensor,
        steps: int,
        documents_BS: torch.Tensor,
        positions_BS: torch.Tensor,
        rows_BM: torch.Tensor | None = None,
    ) -> list[torch.Tensor]:
        """`steps` tensors y_BMD; `logits(y)` of the rows that count gives logits over the draft vocabulary.

        tokens_BS     int64, documents one after another in each row
        hidden_BSD    the target's last hidden state at each position (see draft_input_postnorm)
        documents_BS  int64, a number for each document of a row; rows never look across
        positions_BS  int64, position within the document
        rows_BM       int64, positions from which drafts are wanted, M of each row; absent: from all, M = S

        Row j of step k (0-based) has read tokens up to t_{j+1+k} and the hidden state h_j, and predicts
        t_{j+2+k}: see `step_labels`. Its hidden input is h_j at step 0, the own output of row j at step
        k - 1 later; it sees the keys of step 0 up to row j and those of row j at the steps 1 to k.
        Rows that are not wanted give their keys of step 0 and no more.
        """
        if rows_BM is None:
            rows_BM = torch.arange(tokens_BS.shape[1], device=tokens_BS.device).expand_as(tokens_BS)
        attention = self.layer.self_attn
        x_BSD = self.combine(_shifted(tokens_BS, 1), hidden_BSD)
        normed_BSD = self.layer.input_layernorm(x_BSD)
        k_BKSE, v_BKSE = attention.keys_values(normed_BSD, rotary_angles(positions_BS, self.config))
        keys, values, outputs = [k_BKSE], [v_BKSE], []
        x_BMD, normed_BMD, feedback_BMD = (_taken(x, rows_BM) for x in (x_BSD, normed_BSD, hidden_BSD))
        chosen_BM = positions_BS.gather(1, rows_BM)
        for step in range(steps):
            angles_BMR = rotary_angles(chosen_BM + step, self.config)
            if step:
                x_BMD = self.combine(_shifted(tokens_BS, step + 1).gather(1, rows_BM), feedback_BMD)
                normed_BMD = self.layer.input_layernorm(x_BMD)
                k_BKME, v_BKME = attention.keys_values(normed_BMD, angles_BMR)
                keys.append(k_BKME)
                values.append(v_BKME)
            mixed_BMD = attention.mix(
                attention.queries(normed_BMD, angles_BMR),
                torch.cat(keys, 2),
                torch.cat(values, 2),
                self._visible(documents_BS, positions_BS, rows_BM, step),
            )
            out_BMD = self.layer.finish(x_BMD, mixed_BMD)
            y_BMD = self.final_layernorm(out_BMD)
            feedback_BMD = y_BMD if self.config.draft_input_postnorm else out_BMD
            outputs.append(y_BMD)
        return outputs

    def combine(self, tokens_BS: torch.Tensor, hidden_BSD: torch.Tensor) -> torch.Tensor:
        """x of rows that read `tokens_BS` after positions whose hidden state is `hidden_BSD`."""
        embedded_BSD = self.enorm(self.vocabulary.embed(tokens_BS).to(hidden_BSD.dtype))
        x_BSD: torch.Tensor = self.eh_proj(torch.cat((embedded_BSD, self.hnorm(hidden_BSD)), -1))
        return x_BSD

    def logits(self, y: torch.Tensor) -> torch.Tensor:
        """[..., D] -> [..., V']"""
        return self.vocabulary.logits(y)

    def _visible(
        self, documents_BS: torch.Tensor, positions_BS: torch.Tensor, rows_BM: torch.Tensor, step: int
    ) -> torch.Tensor:
        """[B, M, S + M step]: which keys each row of a step sees."""
        order_S = torch.arange(documents_BS.shape[1], device=documents_BS.device)
        oldest_BM = positions_BS.gather(1, rows_BM) + step - self.config.window
        earlier_BMS = (
            (rows_BM[:, :, None] >= order_S)
            & (documents_BS.gather(1, rows_BM)[:, :, None] == documents_BS[:, None])
            & (positions_BS[:, None] > oldest_BM[:, :, None])
        )
        own_MM = torch.eye(rows_BM.shape[1], dtype=torch.bool, device=rows_BM.device)
        return torch.cat((earlier_BMS, *[own_MM.expand(len(rows_BM), -1, -1)] * step), -1)


def step_labels(tokens_BS: torch.Tensor, documents_BS: torch.Tensor, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """labels_BS: the token that row j of a step predicts, t_{j+2+step}; valid_BS: whether the document reaches it.

    The target's own distribution of that token is found at position j + 1 + step.
    """
    labels_BS = _shifted(tokens_BS, step + 2)
    reached_BS = F.pad(documents_BS, (0, step + 2), value=-1)[:, step + 2 :]
    return labels_BS, reached_BS == documents_BS


def _shifted(x_BS: torch.Tensor, by: int) -> torch.Tensor:
    """x_{j+by} at j; 0 past the end."""
    return F.pad(x_BS, (0, by))[:, by:]


def _taken(x_BSD: torch.Tensor, rows_BM: torch.Tensor) -> torch.Tensor:
    """x at the chosen positions: [B, M, D]."""
    return x_BSD.gather(1, rows_BM[..., None].expand(-1, -1, x_BSD.shape[-1]))
