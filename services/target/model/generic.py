"""Any transformers causal LM, with its attention and its matrix products replaced by ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

from services.target.kernels.build import Kernels
from services.target.kv.pool import KVPool
from services.target.model.attention import Attention
from services.target.model.matrix import Matrix, PlainMatrix, make_matrix
from services.target.model.row_plan import RowPlan
from services.target.model.spec import ModelSpec
from services.target.model.step import Pass, PassResult

ATTENTION_NAME = "draftfleet_paged"


@dataclass(frozen=True, slots=True)
class _Active:
    """The pass that is being computed; transformers calls attention by name, so it is found here."""

    step: Pass
    pool: KVPool
    attention: Attention
    windows: tuple[int, ...]


_active: _Active | None = None


def _paged_attention(  # type: ignore[no-untyped-def]
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    **kwargs,
) -> tuple[torch.Tensor, None]:
    """query [1, heads, rows, head size], key and value [1, kv heads, rows, head size]."""
    assert _active is not None, "attention was called outside a pass"
    if kwargs.get("s_aux") is not None:
        raise ValueError("target: attention sinks are not supported")
    if not kwargs.get("is_causal", getattr(module, "is_causal", True)):
        raise ValueError("target: attention in both directions is not supported")
    layer = cast(int, module.layer_idx)
    window = kwargs.get("sliding_window", _active.windows[layer]) or 0
    if window != _active.windows[layer]:
        raise ValueError(
            f"target: layer {layer} wants a window of {window}, its configuration {_active.windows[layer]}"
        )
    step, pool = _active.step, _active.pool
    _active.attention.store(layer, step, key[0].transpose(0, 1), value[0].transpose(0, 1), pool)
    query_NHD = query[0].transpose(0, 1).contiguous()
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    out_NC = _active.attention.attend(layer, step, query_NHD, pool, scale, softcap or 0.0)
    return out_NC.view(1, *query_NHD.shape), None


def _no_mask(*args: object, **kwargs: object) -> None:
    """Causality and windows are the paged attention's own business."""


AttentionInterface.register(ATTENTION_NAME, _paged_attention)
AttentionMaskInterface.register(ATTENTION_NAME, _no_mask)


class GenericDecoder:
    def __init__(
        self,
        model: PreTrainedModel,
        spec: ModelSpec,
        attention: Attention,
        plan: RowPlan,
        kernels: Kernels | None = None,
    ) -> None:
        """`model` must have been loaded with attn_implementation=ATTENTION_NAME."""
        self.spec = spec
        self._model = model.eval()
        self._attention = attention
        self.plan = plan
        self._shapes: dict[tuple[int, int], Matrix] = {}
        embedding = model.get_input_embeddings().weight
        for module in model.modules():
            if isinstance(module, nn.Linear):
                bias = None if module.bias is None else module.bias.detach()
                matrix = make_matrix(module.weight.detach(), bias, kernels)
                self._shapes.setdefault((matrix.out_features, matrix.in_features), matrix)
                module.forward = self._product(matrix)  # type: ignore[method-assign, assignment]
                if module.weight is not embedding and not isinstance(matrix, PlainMatrix):
                    module.weight = nn.Parameter(module.weight.new_empty(0))  # the packed copy is enough

    def _product(self, matrix: Matrix) -> Callable[[torch.Tensor], torch.Tensor]:
        def forward(x: torch.Tensor) -> torch.Tensor:
            flat = self.plan.multiply(x.reshape(-1, x.shape[-1]), matrix)
            return flat.view(*x.shape[:-1], matrix.out_features)

        return forward

    def matrices(self) -> list[Matrix]:
        return list(self._shapes.values())

    def plain_logits(self, tokens: list[int]) -> torch.Tensor:
        """[tokens, vocabulary] fp32, by the attention that transformers has for the family."""
        self._model.set_attn_implementation("eager")
        try:
            inputs = torch.tensor([tokens], device=self._model.device)
            return cast(torch.Tensor, self._model(input_ids=inputs, use_cache=False).logits[0].float())
        finally:
            self._model.set_attn_implementation(ATTENTION_NAME)

    def forward(self, step: Pass, pool: KVPool) -> PassResult:
        global _active
        wanted = bool(step.capture)
        _active = _Active(step, pool, self._attention, self.spec.windows)
        try:
            out = self._model(
                input_ids=step.tokens_N[None],
                position_ids=step.positions_N[None].long(),
                use_cache=False,
                output_hidden_states=wanted,
                logits_to_keep=step.logit_rows_Q,
            )
        finally:
            _active = None
        features_NTD = self._features(step, out.hidden_states) if wanted else None
        return PassResult(out.logits[0].float(), features_NTD)

    def _features(self, step: Pass, states: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """transformers lists the embedding first and the final state after the final norm."""
        if -1 in step.capture and not step.capture_postnorm:
            raise ValueError("target: this model gives its final hidden state only after the final norm")
        return torch.stack([states[layer + 1 if layer >= 0 else -1][0] for layer in step.capture], 1)
