"""A decoder with few operations a layer, for the families that share Llama's build.

Llama, Mistral, Qwen2 and Qwen3: pre-norm, grouped-query attention, rotary
embedding, SwiGLU. Projections that read the same input are fused, and query
and key norm, rotation, cache write and attention are one kernel call each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from transformers import PretrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from services.target.kernels.build import Kernels
from services.target.kv.pool import KVPool
from services.target.model.attention import Attention, Rotary
from services.target.model.matrix import Matrix, NativeMatrix, make_matrix
from services.target.model.row_plan import RowPlan
from services.target.model.rowwise import make_row_ops
from services.target.model.spec import ModelSpec
from services.target.model.step import Pass, PassResult

LEAN_FAMILIES = frozenset({"llama", "mistral", "qwen2", "qwen3"})


@dataclass(frozen=True, slots=True)
class _Layer:
    """C = (heads + 2 kv heads) * head size, F the feed-forward size."""

    input_norm_D: torch.Tensor
    qkv: Matrix  # hidden -> C
    output: Matrix
    mlp_norm_D: torch.Tensor
    gate_up: Matrix  # hidden -> 2 F
    down: Matrix
    rotary: Rotary


class _Taken:
    """The tensors of a checkpoint, and which of them nobody has asked for yet."""

    def __init__(self, weights: Mapping[str, torch.Tensor]) -> None:
        self._weights = weights
        self.left = set(weights)

    def need(self, name: str) -> torch.Tensor:
        tensor = self.find(name)
        if tensor is None:
            raise ValueError(f"target: the checkpoint lacks {name}")
        return tensor

    def find(self, name: str) -> torch.Tensor | None:
        self.ignore(name)
        return self._weights.get(name)

    def ignore(self, name: str) -> None:
        self.left.discard(name)


class LeanDecoder:
    def __init__(
        self,
        config: PretrainedConfig,
        spec: ModelSpec,
        weights: Mapping[str, torch.Tensor],
        attention: Attention,
        plan: RowPlan,
        kernels: Kernels | None = None,
    ) -> None:
        """`weights` under the names of a transformers checkpoint.

        Raises ValueError for one that is missing or unknown.
        """
        if config.hidden_act != "silu":
            raise ValueError(
                f"target: hidden_act {config.hidden_act!r} is not supported in {config.model_type}; only silu"
            )
        self.spec = spec
        self.plan = plan
        self._attention = attention
        self._eps = config.rms_norm_eps
        self._scale = spec.head_dim**-0.5
        self._kernels = kernels
        taken = _Taken(weights)
        embedding_VD = taken.need("model.embed_tokens.weight")
        self.final_norm_D = taken.need("model.norm.weight")
        if config.tie_word_embeddings:
            taken.ignore("lm_head.weight")
            self.head = self._matrix(embedding_VD)
        else:
            self.head = self._matrix(taken.need("lm_head.weight"))
        # A packed head can serve as the embedding that is tied to it: a second copy would be its largest tensor.
        tied = self.head if config.tie_word_embeddings and isinstance(self.head, NativeMatrix) else None
        self._embed = tied.rows if tied else partial(F.embedding, weight=embedding_VD)
        cosine_PR, sine_PR = _rotary_tables(config, spec, embedding_VD.device)
        self._layers = [self._build_layer(i, taken, cosine_PR, sine_PR) for i in range(spec.layers)]
        self._rows = make_row_ops(kernels, embedding_VD.dtype, spec.hidden, self._layers[0].down.in_features)
        unknown = [name for name in taken.left if not name.endswith("rotary_emb.inv_freq")]
        if unknown:
            raise ValueError(f"target: the checkpoint has tensors that this family does not use: {sorted(unknown)[:5]}")

    def _build_layer(self, index: int, taken: _Taken, cosine_PR: torch.Tensor, sine_PR: torch.Tensor) -> _Layer:
        prefix = f"model.layers.{index}."
        attention = prefix + "self_attn."
        biases = [b for p in "qkv" if (b := taken.find(f"{attention}{p}_proj.bias")) is not None]
        norms = [taken.find(f"{attention}{p}_norm.weight") for p in "qk"]
        q_norm_D, k_norm_D = (None if n is None else n.float() for n in norms)
        return _Layer(
            input_norm_D=taken.need(prefix + "input_layernorm.weight"),
            qkv=self._matrix(
                torch.cat([taken.need(f"{attention}{p}_proj.weight") for p in "qkv"]),
                torch.cat(biases) if biases else None,
            ),
            output=self._matrix(taken.need(attention + "o_proj.weight"), taken.find(attention + "o_proj.bias")),
            mlp_norm_D=taken.need(prefix + "post_attention_layernorm.weight"),
            gate_up=self._matrix(torch.cat([taken.need(f"{prefix}mlp.{p}_proj.weight") for p in ("gate", "up")])),
            down=self._matrix(taken.need(prefix + "mlp.down_proj.weight")),
            rotary=Rotary(cosine_PR, sine_PR, q_norm_D, k_norm_D, self._eps),
        )

    def _matrix(self, weight_OI: torch.Tensor, bias_O: torch.Tensor | None = None) -> Matrix:
        return make_matrix(weight_OI, bias_O, self._kernels)

    def matrices(self) -> list[Matrix]:
        """One of each product of a pass."""
        layer = self._layers[0]
        return [layer.qkv, layer.output, layer.gate_up, layer.down, self.head]

    def forward(self, step: Pass, pool: KVPool) -> PassResult:
        plan, attention = self.plan, self._attention
        captured: dict[int, torch.Tensor] = {}
        x_ND = self._embed(step.tokens_N)
        normed_ND = self._rows.norm(x_ND, self._layers[0].input_norm_D, self._eps)
        norms = [*(layer.input_norm_D for layer in self._layers[1:]), self.final_norm_D]
        for index, (layer, next_norm_D) in enumerate(zip(self._layers, norms, strict=True)):
            qkv_NC = plan.multiply(normed_ND, layer.qkv)
            query_NHK = attention.rotate(index, step, qkv_NC, layer.rotary, pool)
            mixed_NH = attention.attend(index, step, query_NHK, pool, self._scale, 0.0)
            change_ND = plan.multiply(mixed_NH, layer.output)
            x_ND, normed_ND = self._rows.add_norm(x_ND, change_ND, layer.mlp_norm_D, self._eps)
            gated_NF = self._rows.gate(plan.multiply(normed_ND, layer.gate_up))
            change_ND = plan.multiply(gated_NF, layer.down)
            x_ND, normed_ND = self._rows.add_norm(x_ND, change_ND, next_norm_D, self._eps)
            if index in step.capture:
                captured[index] = x_ND
        if -1 in step.capture:
            captured[-1] = normed_ND if step.capture_postnorm else x_ND
        logits_QV = plan.multiply(normed_ND[step.logit_rows_Q], self.head).float()
        features_NTD = torch.stack([captured[layer] for layer in step.capture], 1) if captured else None
        return PassResult(logits_QV, features_NTD)


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
    elif kind not in ROPE_INIT_FUNCTIONS:
        raise ValueError(
            f"target: rope_type {kind!r} is not supported; allowed are default, {', '.join(ROPE_INIT_FUNCTIONS)}"
        )
    else:
        frequencies_R, scaling = ROPE_INIT_FUNCTIONS[kind](config, device)
    positions = torch.arange(spec.max_positions, dtype=torch.float32, device=device)
    angles_PR = positions[:, None] * frequencies_R
    return (angles_PR.cos() * scaling).contiguous(), (angles_PR.sin() * scaling).contiguous()
