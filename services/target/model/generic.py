"""Any transformers causal LM, with its attention and its matrix products replaced by ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

from services.target.kv.pool import KVPool
from services.target.model.attention import Attention
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
    layer = cast(int, module.layer_idx)
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
    def __init__(self, model: PreTrainedModel, spec: ModelSpec, attention: Attention, plan: RowPlan) -> None:
        """`model` must have been loaded with attn_implementation=ATTENTION_NAME."""
        self.spec = spec
        self._model = model.eval()
        self._attention = attention
        self._linears = [m for m in model.modules() if isinstance(m, nn.Linear)]
        self.plan = plan
        for linear in self._linears:
            linear.forward = self._bind(linear)  # type: ignore[method-assign]

    def _bind(self, linear: nn.Linear):  # type: ignore[no-untyped-def]
        def forward(x: torch.Tensor) -> torch.Tensor:
            flat = self.plan.linear(x.reshape(-1, x.shape[-1]), linear.weight, linear.bias)
            return flat.view(*x.shape[:-1], -1)

        return forward

    def matrices(self) -> list[torch.Tensor]:
        shapes: dict[torch.Size, torch.Tensor] = {}
        for linear in self._linears:
            shapes.setdefault(linear.weight.shape, linear.weight.detach())
        return list(shapes.values())

    def forward(self, step: Pass, pool: KVPool) -> PassResult:
        global _active
        wanted = bool(step.capture)
        _active = _Active(step, pool, self._attention)
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
