"""The decoder layer of the drafters, under the tensor names of transformers checkpoints.

Shapes: B batch, S rows, J keys, D hidden size, H query heads, K key-value heads, E head size.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from services.drafters.neural.config import DecoderConfig


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), self.eps)


class Attention(nn.Module):
    """Projections, norms and rotation; which keys a row sees is the caller's matter."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        hidden, size = config.hidden_size, config.head_dim
        heads, kv_heads, bias = config.num_attention_heads, config.num_key_value_heads, config.attention_bias
        self.head_dim = size
        self.q_proj = nn.Linear(hidden, heads * size, bias=bias)
        self.k_proj = nn.Linear(hidden, kv_heads * size, bias=bias)
        self.v_proj = nn.Linear(hidden, kv_heads * size, bias=bias)
        self.o_proj = nn.Linear(heads * size, hidden, bias=False)
        self.q_norm = RMSNorm(size, config.rms_norm_eps) if config.has_qk_norm else None
        self.k_norm = RMSNorm(size, config.rms_norm_eps) if config.has_qk_norm else None

    def queries(self, x_BSD: torch.Tensor, angles_BSR: torch.Tensor) -> torch.Tensor:
        """[B, H, S, E]"""
        return self._heads(self.q_proj(x_BSD), self.q_norm, angles_BSR)

    def keys_values(self, x_BSD: torch.Tensor, angles_BSR: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[B, K, S, E] each."""
        return self._heads(self.k_proj(x_BSD), self.k_norm, angles_BSR), self._heads(self.v_proj(x_BSD), None, None)

    def mix(
        self, q_BHSE: torch.Tensor, k_BKJE: torch.Tensor, v_BKJE: torch.Tensor, visible_BSJ: torch.Tensor
    ) -> torch.Tensor:
        """One softmax over the visible keys, and the output projection: [B, S, D]."""
        mixed_BHSE = F.scaled_dot_product_attention(q_BHSE, k_BKJE, v_BKJE, visible_BSJ[:, None], enable_gqa=True)
        out_BSD: torch.Tensor = self.o_proj(mixed_BHSE.transpose(1, 2).flatten(2))
        return out_BSD

    def _heads(self, x_BSC: torch.Tensor, norm: RMSNorm | None, angles_BSR: torch.Tensor | None) -> torch.Tensor:
        x_BSHE = x_BSC.unflatten(-1, (-1, self.head_dim))
        if norm is not None:
            x_BSHE = norm(x_BSHE)
        x_BHSE = x_BSHE.transpose(1, 2)
        return x_BHSE if angles_BSR is None else rotate(x_BHSE, angles_BSR)


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, size_in: int, size: int, size_out: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(size_in, size, bias=False)
        self.up_proj = nn.Linear(size_in, size, bias=False)
        self.down_proj = nn.Linear(size, size_out, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return y


class DecoderLayer(nn.Module):
    """Pre-norm: x + attention(norm(x)), then x + feed-forward(norm(x))."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = FeedForward(config.hidden_size, config.intermediate_size, config.hidden_size)

    def finish(self, x_BSD: torch.Tensor, mixed_BSD: torch.Tensor) -> torch.Tensor:
        """The layer's output, from its input and what its attention gave."""
        x_BSD = x_BSD + mixed_BSD
        fed_BSD: torch.Tensor = self.mlp(self.post_attention_layernorm(x_BSD))
        return x_BSD + fed_BSD


def rotary_angles(positions_BS: torch.Tensor, config: DecoderConfig) -> torch.Tensor:
    """Angles [B, S, E / 2], fp32."""
    size = config.head_dim
    exponents_R = torch.arange(0, size, 2, dtype=torch.float32, device=positions_BS.device) / size
    return positions_BS[..., None].float() / config.rope_theta**exponents_R


def rotate(x_BHSE: torch.Tensor, angles_BSR: torch.Tensor) -> torch.Tensor:
    """Turns the pairs (d, d + E / 2) by their angles; in fp32, returned in x's type."""
    cosine, sine = angles_BSR.cos()[:, None], angles_BSR.sin()[:, None]
    low, high = x_BHSE.float().chunk(2, -1)
    return torch.cat((low * cosine - high * sine, high * cosine + low * sine), -1).to(x_BHSE.dtype)
