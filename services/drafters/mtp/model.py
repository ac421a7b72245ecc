"""MTP: one decoder layer that continues from the target's last hidden state.

    x_j = W_eh [ RMS_e(E[t_{j+1}]) ; RMS_h(h_j) ]
    y_j = RMS_final(Layer(x)_j),  logits = y_j W_lm^T  -> predicts t_{j+2}

Shapes: B packed rows of documents, S positions, D hidden size, J keys, V' draft vocabulary.
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
    ) -> list[torch.Tensor]:
        """`steps` tensors y_BSD; `logits(y)` of the rows that count gives logits over the draft vocabulary.

        tokens_BS     int64, documents one after another in each row
        hidden_BSD    the target's last hidden state at each position (see draft_input_postnorm)
        documents_BS  int64, a number for each document of a row; rows never look across
        positions_BS  int64, position within the document

        Row j of step k (0-based) has read tokens up to t_{j+1+k} and the hidden state h_j, and predicts
        t_{j+2+k}: see `step_labels`. Its hidden input is h_j at step 0, the own output of row j at step
        k - 1 later; it sees the keys of step 0 up to row j and those of row j at the steps 1 to k.
        """
        feedback_BSD, keys, values, outputs = hidden_BSD, [], [], []
        for step in range(steps):
            read_BS = _shifted(tokens_BS, step + 1)
            x_BSD = self.combine(read_BS, feedback_BSD)
            angles_BSR = rotary_angles(positions_BS + step, self.config)
            normed_BSD = self.layer.input_layernorm(x_BSD)
            attention = self.layer.self_attn
            k_BKSE, v_BKSE = attention.keys_values(normed_BSD, angles_BSR)
            keys.append(k_BKSE)
            values.append(v_BKSE)
            mixed_BSD = attention.mix(
                attention.queries(normed_BSD, angles_BSR),
                torch.cat(keys, 2),
                torch.cat(values, 2),
                self._visible(documents_BS, positions_BS, step),
            )
            out_BSD = self.layer.finish(x_BSD, mixed_BSD)
            y_BSD = self.final_layernorm(out_BSD)
            feedback_BSD = y_BSD if self.config.draft_input_postnorm else out_BSD
            outputs.append(y_BSD)
        return outputs

    def combine(self, tokens_BS: torch.Tensor, hidden_BSD: torch.Tensor) -> torch.Tensor:
        """x of rows that read `tokens_BS` after positions whose hidden state is `hidden_BSD`."""
        embedded_BSD = self.enorm(self.vocabulary.embed(tokens_BS).to(hidden_BSD.dtype))
        x_BSD: torch.Tensor = self.eh_proj(torch.cat((embedded_BSD, self.hnorm(hidden_BSD)), -1))
        return x_BSD

    def logits(self, y: torch.Tensor) -> torch.Tensor:
        """[..., D] -> [..., V']"""
        return self.vocabulary.logits(y)

    def _visible(self, documents_BS: torch.Tensor, positions_BS: torch.Tensor, step: int) -> torch.Tensor:
        """[B, S, S (step + 1)]: which keys each row of a step sees."""
        order_S = torch.arange(documents_BS.shape[1], device=documents_BS.device)
        earlier_BSJ = (order_S[None, :, None] >= order_S[None, None]) & (
            documents_BS[:, :, None] == documents_BS[:, None]
        )
        oldest_BS = positions_BS + step - self.config.window
        earlier_BSJ = earlier_BSJ & (positions_BS[:, None] > oldest_BS[:, :, None])
        own_BSJ = (order_S[:, None] == order_S[None]).expand_as(earlier_BSJ)
        return torch.cat((earlier_BSJ, *[own_BSJ] * step), -1)


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
