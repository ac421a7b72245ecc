"""A trained drafter's layers, packed for serving: fused projections, one kernel call for what is small.

Shapes: N rows, D hidden size, C = (heads + 2 kv heads) * head size, F feed-forward size.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from services.drafters.neural.config import DecoderConfig
from services.drafters.neural.layer import DecoderLayer, RMSNorm, rotary_angles
from services.drafters.neural.settings import NeuralSettings
from services.target.kernels.build import Kernels, KernelsUnavailable, load_kernels
from services.target.model.attention import Attention, NativeAttention, Rotary, TorchAttention
from services.target.model.matrix import Matrix, make_matrix
from services.target.model.rowwise import make_row_ops
from services.target.model.spec import ModelSpec

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Machine:
    """What a drafter computes with."""

    device: torch.device
    dtype: torch.dtype
    kernels: Kernels | None
    cache_dir: Path

    @classmethod
    def choose(cls, settings: NeuralSettings, cache_dir: Path) -> Machine:
        name = settings.device
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        device = torch.device(name)
        kernels = None
        if device.type == "cpu":
            try:
                kernels = load_kernels(cache_dir)
            except KernelsUnavailable as error:
                _log.warning("plain torch operations in use, slower: %s", error)
        is_slow = device.type == "cpu" and kernels is None
        wants_fp32 = settings.precision == "fp32" or (settings.precision == "auto" and is_slow)
        return cls(device, torch.float32 if wants_fp32 else torch.bfloat16, kernels, cache_dir)

    def matrix(self, *weights_OI: torch.Tensor, bias_O: torch.Tensor | None = None) -> Matrix:
        """The product with all weights, one below the other."""
        weight_OI = torch.cat([weight.detach() for weight in weights_OI]) if len(weights_OI) > 1 else weights_OI[0]
        weight_OI = weight_OI.detach().to(self.device, self.dtype)
        return make_matrix(weight_OI, None if bias_O is None else self.tensor(bias_O), self.kernels)

    def tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().to(self.device, self.dtype).contiguous()

    def attention(self, spec: ModelSpec) -> Attention:
        if self.kernels is not None and NativeAttention.supports(spec, self.dtype, self.device):
            return NativeAttention(spec, self.dtype, self.cache_dir)
        return TorchAttention(spec)


class PackedNorm:
    def __init__(self, norm: RMSNorm, machine: Machine) -> None:
        self.weight_D = machine.tensor(norm.weight)
        self.eps = norm.eps
        self._rows = make_row_ops(machine.kernels, machine.dtype, self.weight_D.shape[0])

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self._rows.norm(x, self.weight_D, self.eps)


class PackedLayer:
    def __init__(self, layer: DecoderLayer, config: DecoderConfig, machine: Machine, angles_PR: torch.Tensor) -> None:
        attention = layer.self_attn
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        bias = torch.cat([p.bias for p in projections]) if config.attention_bias else None
        self.input_norm = PackedNorm(layer.input_layernorm, machine)
        self.qkv = machine.matrix(*(p.weight for p in projections), bias_O=bias)
        self.output = machine.matrix(attention.o_proj.weight)
        self.rotary = Rotary(
            angles_PR.cos().contiguous(),
            angles_PR.sin().contiguous(),
            _norm_weight(attention.q_norm, machine),
            _norm_weight(attention.k_norm, machine),
            config.rms_norm_eps,
        )
        self._mlp_norm = PackedNorm(layer.post_attention_layernorm, machine)
        self._gate_up = machine.matrix(layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight)
        self._down = machine.matrix(layer.mlp.down_proj.weight)
        self._rows = make_row_ops(machine.kernels, machine.dtype, config.hidden_size, config.intermediate_size)

    def finish(self, x_ND: torch.Tensor, mixed_NH: torch.Tensor) -> torch.Tensor:
        """The layer's output, from its input and the mixed values of its heads."""
        norm = self._mlp_norm
        x_ND, normed_ND = self._rows.add_norm(x_ND, self.output(mixed_NH), norm.weight_D, norm.eps)
        return x_ND + self._down(self._rows.gate(self._gate_up(normed_ND)))


def serving_spec(config: DecoderConfig, window: int) -> ModelSpec:
    """`window`: rows that a query sees, its own included."""
    return ModelSpec(
        vocabulary=config.vocab_size,
        hidden=config.hidden_size,
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        max_positions=config.max_position_embeddings,
        windows=(window,) * config.num_hidden_layers,
        eos_ids=(),
    )


def angle_table(config: DecoderConfig, spare: int, device: torch.device) -> torch.Tensor:
    """Angles of all positions and `spare` more: [positions, head size / 2] fp32."""
    positions = torch.arange(config.max_position_embeddings + spare, device=device)
    return rotary_angles(positions[None], config)[0]


def _norm_weight(norm: nn.Module | None, machine: Machine) -> torch.Tensor | None:
    if norm is None:
        return None
    assert isinstance(norm, RMSNorm)
    return norm.weight.detach().float().to(machine.device)
