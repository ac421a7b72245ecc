"""DFly: fills a block of draft slots in one pass over several hidden states of the target.

    c_s     = W_fc concat_t X_{s,t}
    f_s^(i) = sum_t softmax(w_i)_t X_{s,t}
    g_s^(i) = RMS_shared(c_s + f_s^(i))             context of layer i: its K and V are made of g
    block   = [anchor at n, mask, mask, ...]        slot k predicts the token at n + k
    h'_k    = h_k + W_dn( SiLU(W_g z) * W_u z ),    z = [RMS_h(h_k) ; RMS_e(E[x_{k-1}])]

Shapes: B packed rows of documents, S positions, T captured layers, D hidden size, A anchors of a row,
N slots of a block, J keys, V' draft vocabulary.
"""

from __future__ import annotations

import torch
from torch import nn

from services.drafters.dfly.config import DflyConfig
from services.drafters.neural.frozen import TargetFolder, TargetParts, Vocabulary
from services.drafters.neural.layer import DecoderLayer, FeedForward, RMSNorm, rotary_angles

_MASK_STD = 0.02
_FUSION_FALL = 2.0


class HiddenCorrection(FeedForward):
    """What the token chosen before a slot changes about the slot's hidden state."""

    def __init__(self, config: DflyConfig) -> None:
        hidden = config.hidden_size
        super().__init__(2 * hidden, config.correction_size, hidden)
        self.hidden_norm = RMSNorm(hidden, config.rms_norm_eps)
        self.embed_norm = RMSNorm(hidden, config.rms_norm_eps)
        nn.init.zeros_(self.down_proj.weight)

    def correct(self, hidden: torch.Tensor, previous: torch.Tensor) -> torch.Tensor:
        """hidden, previous (embedding of the token before): [..., D]."""
        z = torch.cat((self.hidden_norm(hidden), self.embed_norm(previous.to(hidden.dtype))), -1)
        change: torch.Tensor = self(z)
        return hidden + change


class DflyModel(nn.Module):
    def __init__(self, config: DflyConfig, parts: TargetParts, d2t: torch.Tensor) -> None:
        super().__init__()
        hidden, eps, count = config.hidden_size, config.rms_norm_eps, len(config.target_layer_ids)
        self.config = config
        self.vocabulary = Vocabulary(parts, d2t)
        self.context_proj = nn.Linear(count * hidden, hidden, bias=False)
        self.context_norm = RMSNorm(hidden, eps)
        self.layer_fusion_weights = nn.Parameter(_fusion_start(config.num_hidden_layers, count))
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_hidden_layers))
        self.final_norm = RMSNorm(hidden, eps)
        self.hidden_correction = HiddenCorrection(config) if config.enable_hidden_correction else None
        self.mask_embedding = nn.Parameter(torch.randn(hidden) * _MASK_STD) if config.mask_token_id is None else None

    @torch.no_grad()
    def start_from(self, target: TargetFolder) -> None:
        """Takes the target's last layers, its final norm, W_fc = the mean of the captured outputs."""
        first = target.config.num_hidden_layers - len(self.layers)
        for index, layer in enumerate(self.decoder_layers()):
            layer.load_state_dict(target.layer(first + index))
        # Context bypasses each layer's own input norm.
        norms = torch.stack([layer.input_layernorm.weight.data for layer in self.decoder_layers()])
        self.context_norm.weight.copy_(norms.mean(0))
        self.final_norm.weight.copy_(target.final_norm())
        count = len(self.config.target_layer_ids)
        self.context_proj.weight.copy_(torch.cat([torch.eye(self.config.hidden_size) / count] * count, 1))
        if self.mask_embedding is not None:
            self.mask_embedding.copy_(self.vocabulary.embedding_VD.float().mean(0))

    def train_forward(
        self,
        tokens_BS: torch.Tensor,
        features_BSTD: torch.Tensor,
        anchors_BA: torch.Tensor,
        documents_BS: torch.Tensor,
        positions_BS: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Hidden states of the draft slots 1 .. N-1 of each block, before and after the correction.

        tokens_BS      int64, documents one after another in each row
        features_BSTD  the target's captured layer outputs at each position
        anchors_BA     int64, index in the row of each block's anchor; the whole block should lie inside
                       the anchor's document: see `block_labels`
        documents_BS   int64, a number for each document of a row; blocks never look across
        positions_BS   int64, position within the document

        Returns (plain, corrected), both [B, A, N - 1, D], the same tensor without a correction;
        `logits` of either gives logits over the draft vocabulary. The correction reads the true tokens.
        """
        size = self.config.block_size
        anchors = anchors_BA.shape[1]
        slots_N = torch.arange(size, device=tokens_BS.device)
        anchored_BA = positions_BS.gather(1, anchors_BA)
        block_positions = (anchored_BA[..., None] + slots_N).flatten(1)
        block_angles = rotary_angles(block_positions, self.config)
        context_angles = rotary_angles(positions_BS, self.config)
        visible = self._visible(anchors_BA, documents_BS, positions_BS)
        x = self.block_input(tokens_BS.gather(1, anchors_BA)).to(features_BSTD.dtype).flatten(1, 2)  # [B, A N, D]
        common_BSD = self.context_proj(features_BSTD.flatten(2))
        for index, layer in enumerate(self.decoder_layers()):
            attention = layer.self_attn
            context_k, context_v = attention.keys_values(self.context(index, common_BSD, features_BSTD), context_angles)
            normed = layer.input_layernorm(x)
            block_k, block_v = attention.keys_values(normed, block_angles)
            mixed = attention.mix(
                attention.queries(normed, block_angles),
                torch.cat((context_k, block_k), 2),
                torch.cat((context_v, block_v), 2),
                visible,
            )
            x = layer.finish(x, mixed)
        hidden = self.final_norm(x).unflatten(1, (anchors, size))[:, :, 1:]
        if self.hidden_correction is None:
            return hidden, hidden
        before = (anchors_BA[..., None] + slots_N[:-1]).clamp_(max=tokens_BS.shape[1] - 1)
        previous = self.vocabulary.embed(tokens_BS.gather(1, before.flatten(1))).unflatten(1, (anchors, size - 1))
        return hidden, self.hidden_correction.correct(hidden, previous)

    def decoder_layers(self) -> list[DecoderLayer]:
        return [layer for layer in self.layers if isinstance(layer, DecoderLayer)]

    def context(self, layer: int, common: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        """g of one layer: common [..., D] is W_fc of the features [..., T, D]."""
        if self.config.enable_layer_fusion:
            weights_T = torch.softmax(self.layer_fusion_weights[layer].float(), -1).to(features.dtype)
            common = common + torch.matmul(weights_T, features)
        g: torch.Tensor = self.context_norm(common)
        return g

    def block_input(self, anchors: torch.Tensor) -> torch.Tensor:
        """Embeddings of a block's slots: token ids [...] -> [..., N, D]."""
        first = self.vocabulary.embed(anchors)[..., None, :]
        mask_D = self.mask_vector().to(first.dtype)
        return torch.cat((first, mask_D.expand(*anchors.shape, self.config.block_size - 1, -1)), -2)

    def mask_vector(self) -> torch.Tensor:
        if self.mask_embedding is not None:
            return self.mask_embedding
        assert self.config.mask_token_id is not None
        return self.vocabulary.embedding_VD[self.config.mask_token_id]

    def logits(self, y: torch.Tensor) -> torch.Tensor:
        """[..., D] -> [..., V']"""
        return self.vocabulary.logits(y)

    def _visible(
        self, anchors_BA: torch.Tensor, documents_BS: torch.Tensor, positions_BS: torch.Tensor
    ) -> torch.Tensor:
        """[B, A N, S + A N]: context before the anchor and inside its window, and the whole own block."""
        (batch, anchors), size = anchors_BA.shape, self.config.block_size
        order_S = torch.arange(documents_BS.shape[1], device=documents_BS.device)
        oldest_BA = positions_BS.gather(1, anchors_BA) - self.config.window
        context_BAS = (
            (order_S < anchors_BA[..., None])
            & (documents_BS[:, None] == documents_BS.gather(1, anchors_BA)[..., None])
            & (positions_BS[:, None] >= oldest_BA[..., None])
        )
        owner = torch.arange(anchors * size, device=anchors_BA.device) // size
        own = (owner[:, None] == owner[None]).expand(batch, -1, -1)
        return torch.cat((context_BAS.repeat_interleave(size, 1), own), -1)


def block_labels(
    tokens_BS: torch.Tensor, documents_BS: torch.Tensor, anchors_BA: torch.Tensor, block_size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """labels [B, A, N - 1]: the tokens at n + 1 .. n + N - 1; valid: whether the anchor's document reaches them.

    The target's own distribution of the token at n + k is found at position n + k - 1.
    """
    at = anchors_BA[..., None] + torch.arange(1, block_size, device=anchors_BA.device)
    inside = at.clamp(max=tokens_BS.shape[1] - 1)
    batch = torch.arange(tokens_BS.shape[0], device=tokens_BS.device)[:, None, None]
    valid = (at == inside) & (documents_BS[batch, inside] == documents_BS.gather(1, anchors_BA)[..., None])
    return tokens_BS[batch, inside], valid


def _fusion_start(layers: int, count: int) -> torch.Tensor:
    """[layers, T]: each layer begins with the captured output at its own relative depth."""
    at = [count - 1] if layers == 1 else [round(i / (layers - 1) * (count - 1)) for i in range(layers)]
    captured_T = torch.arange(count, dtype=torch.float32)
    return torch.stack([-_FUSION_FALL * (captured_T - centre).abs() for centre in at])
