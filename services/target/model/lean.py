"""A decoder with few operations a layer, for the families that share Llama's build.

Llama, Mistral, Qwen2 and Qwen3: pre-norm, grouped-query attention, rotary
embedding, SwiGLU. Projections that read the same input are fused, and query
and key norm, rotation, cache write and attention are one kernel call each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from transformers import PretrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from services.target.kv.pool import KVPool
from services.target.model.attention import Attention, Rotary
from services.target.model.row_plan import RowPlan
from services.target.model.spec import ModelSpec
from services.target.model.step import Pass, PassResult

LEAN_FAMILIES = frozenset({"llama", "mistral", "qwen2", "qwen3"})


@dataclass(frozen=True, slots=True)
class _Layer:
    """Weights are [out, in]; C = (heads + 2 kv heads) * head size, F the feed-forward size."""

    input_norm_D: torch.Tensor
    qkv_CD: torch.Tensor
    qkv_bias_C: torch.Tensor | None
    output_DH: torch.Tensor
    output_bias_D: torch.Tensor | None
    mlp_norm_D: torch.Tensor
    gate_up_FD: torch.Tensor
    down_DF: torch.Tensor
    rotary: Rotary


class LeanDecoder:
    def __init__(
        self,
        config: PretrainedConfig,
        spec: ModelSpec,
        weights: Mapping[str, torch.Tensor],
        attention: Attention,
        plan: RowPlan,
    ) -> None:
        """`weights` under the names of a transformers checkpoint.

        Raises ValueError for one that is missing or unknown.
        """
        self.spec = spec
        self.plan = plan
        self._attention = attention
        self._eps = config.rms_norm_eps
        self._scale = spec.head_dim**-0.5
        left = dict(weights)

        def take(name: str) -> torch.Tensor:
            if name not in left:
                raise ValueError(f"target: the checkpoint lacks {name}")
            return left.pop(name)

        self.embedding_VD = take("model.embed_tokens.weight")
        self.final_norm_D = take("model.norm.weight")
        self.head_VD = left.pop("lm_head.weight", self.embedding_VD)
        cosine_PR, sine_PR = _rotary_tables(config, spec, self.embedding_VD.device)
        self._layers = [self._build_layer(i, left, take, cosine_PR, sine_PR) for i in range(spec.layers)]
        unknown = [name for name in left if not name.endswith("rotary_emb.inv_freq")]
        if unknown:
            raise ValueError(f"target: the checkpoint has tensors that this family does not use: {unknown[:5]}")

    def _build_layer(self, index, left, take, cosine_PR, sine_PR) -> _Layer:  # type: ignore[no-untyped-def]
        prefix = f"model.layers.{index}."
        attention = prefix + "self_attn."
        biases = [left.pop(f"{attention}{p}_proj.bias", None) for p in "qkv"]
        norms = [left.pop(f"{attention}{p}_norm.weight", None) for p in "qk"]
        q_norm_D, k_norm_D = (None if n is None else n.float() for n in norms)
        return _Layer(
            input_norm_D=take(prefix + "input_layernorm.weight"),
            qkv_CD=torch.cat([take(f"{attention}{p}_proj.weight") for p in "qkv"]),
            qkv_bias_C=None if biases[0] is None else torch.cat(biases),
            output_DH=take(attention + "o_proj.weight"),
            output_bias_D=left.pop(attention + "o_proj.bias", None),
            mlp_norm_D=take(prefix + "post_attention_layernorm.weight"),
            gate_up_FD=torch.cat([take(f"{prefix}mlp.{p}_proj.weight") for p in ("gate", "up")]),
            down_DF=take(prefix + "mlp.down_proj.weight"),
            rotary=Rotary(cosine_PR, sine_PR, q_norm_D, k_norm_D, self._eps),
        )

    def matrices(self) -> list[torch.Tensor]:
        """One weight of each product of a pass."""
        layer = self._layers[0]
        return [layer.qkv_CD, layer.output_DH, layer.gate_up_FD, layer.down_DF, self.head_VD]

    def forward(self, step: Pass, pool: KVPool) -> PassResult:
        plan, attention = self.plan, self._attention
        captured: list[torch.Tensor] = []
        x_ND = F.embedding(step.tokens_N, self.embedding_VD)
        for index, layer in enumerate(self._layers):
            normed_ND = self._norm(x_ND, layer.input_norm_D)
            qkv_NC = plan.linear(normed_ND, layer.qkv_CD, layer.qkv_bias_C)
            query_NHK = attention.rotate(index, step, qkv_NC, layer.rotary, pool)
            mixed_NH = attention.attend(index, step, query_NHK, pool, self._scale, 0.0)
            x_ND = x_ND + plan.linear(mixed_NH, layer.output_DH, layer.output_bias_D)
            gate_up_NF = plan.linear(self._norm(x_ND, layer.mlp_norm_D), layer.gate_up_FD)
            gate_NF, up_NF = gate_up_NF.chunk(2, dim=-1)
            x_ND = x_ND + plan.linear(F.silu(gate_NF).mul_(up_NF), layer.down_DF)
            if index in step.capture:
                captured.append(x_ND)
        final_ND = self._norm(x_ND, self.final_norm_D)
        if -1 in step.capture:
            captured.append(final_ND if step.capture_postnorm else x_ND)
        logits_QV = plan.linear(final_ND[step.logit_rows_Q], self.head_VD).float()
        return PassResult(logits_QV, torch.stack(captured, 1) if captured else None)

    def _norm(self, x_ND: torch.Tensor, weight_D: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x_ND, (self.spec.hidden,), weight_D, self._eps)


def _rotary_tables(
    config: PretrainedConfig, spec: ModelSpec, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin [positions, rotary size / 2] fp32, attention scaling included."""
    parameters = config.rope_parameters
    kind = parameters.get("rope_type", "default")
    if kind == "default":
        size = int(spec.head_dim * parameters.get("partial_rotary_factor", 1.0))
        exponents = torch.arange(0, size, 2, dtype=torch.float32, device=device) / size
        frequencies_R, scaling = 1.0 / parameters["rope_theta"] ** exponents, 1.0
    else:
        frequencies_R, scaling = ROPE_INIT_FUNCTIONS[kind](config, device)
    positions = torch.arange(spec.max_positions, dtype=torch.float32, device=device)
    angles_PR = positions[:, None] * frequencies_R
    return (angles_PR.cos() * scaling).contiguous(), (angles_PR.sin() * scaling).contiguous()
