"""Reads the configurations of published drafters, which are named as in transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

_NEEDED = (
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "rms_norm_eps",
    "max_position_embeddings",
)


def public_sizes(raw: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], layer: str) -> dict[str, Any]:
    """The fields of a DecoderConfig but the number of layers; `layer` is the name of the first.

    Raises ValueError that names what is missing or not supported.
    """
    missing = [key for key in _NEEDED if raw.get(key) is None]
    if missing:
        raise ValueError(f"weights: config.json lacks {', '.join(missing)}")
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise ValueError(f"weights: rope_type {kind!r} is not supported in a drafter; allowed is default")
    sizes = {key: raw[key] for key in _NEEDED}
    return {
        **sizes,
        "head_dim": raw.get("head_dim") or raw["hidden_size"] // raw["num_attention_heads"],
        "rope_theta": rope.get("rope_theta", raw.get("rope_theta", 10000.0)),
        "has_qk_norm": f"{layer}self_attn.k_norm.weight" in tensors,
        "attention_bias": f"{layer}self_attn.k_proj.bias" in tensors,
    }


def public_window(raw: Mapping[str, Any]) -> dict[str, int]:
    """A published drafter was trained without a window; one of ours may name it."""
    return {"window": int(raw["window"])} if "window" in raw else {}
