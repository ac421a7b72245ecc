"""DFly checkpoints: our own and published ones, which use the same tensor names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from services.drafters.dfly.config import DflyConfig
from services.drafters.dfly.model import DflyModel
from services.drafters.neural.checkpoint import (
    LAYER_SIZES,
    check_sizes,
    check_target,
    draft_ids,
    fill,
    read_config,
    read_tensors,
    strip_prefixes,
)
from services.drafters.neural.frozen import TargetFolder
from services.drafters.neural.public import public_sizes, public_window

_PREFIXES = ("module.", "draft_model.", "model.")
_IGNORED = ("embed_tokens.", "lm_head.", "markov", "confidence", "t2d", "d2t", "rotary_emb.")
_CORRECTION = "hidden_correction."


def load_dfly(folder: Path, target: TargetFolder, dtype: torch.dtype = torch.float32) -> DflyModel:
    """The drafter of a checkpoint folder, with embedding and head of its target.

    Raises ValueError that names the setting or tensor that is wrong.
    """
    raw, tensors = read_config(folder), read_tensors(folder)
    if raw.get("kind") == "dfly":
        config = DflyConfig.model_validate(raw)
    else:
        stripped = strip_prefixes(tensors, _PREFIXES)
        tensors = {name: tensor for name, tensor in stripped.items() if not name.startswith(_IGNORED)}
        config = _public_config(raw, tensors)
    check_target(config, target.config.hidden_size, target.config.vocab_size)
    if config.target_num_hidden_layers != target.config.num_hidden_layers:
        raise ValueError(
            f"weights: target_num_hidden_layers is {config.target_num_hidden_layers}, but the target has "
            f"{target.config.num_hidden_layers}"
        )
    d2t = draft_ids(tensors, config)
    values = {
        **config.model_dump(),
        "num_target_layers": len(config.target_layer_ids),
        "hidden_correction_intermediate_size": config.correction_size,
    }
    check_sizes(tensors, _sizes(config), values)
    model = DflyModel(config, target.parts(dtype), d2t)
    fill(model, tensors)
    return model.to(dtype)


def _sizes(config: DflyConfig) -> dict[str, Any]:
    hidden, correction = ("hidden_size",), ("hidden_correction_intermediate_size",)
    sizes: dict[str, Any] = {
        "context_proj.weight": (hidden, ("num_target_layers", "hidden_size")),
        "context_norm.weight": (hidden,),
        "layer_fusion_weights": (("num_hidden_layers",), ("num_target_layers",)),
        "final_norm.weight": (hidden,),
    }
    for index in range(config.num_hidden_layers):
        for name, shape in LAYER_SIZES.items():
            if name.endswith(".bias") and not config.attention_bias:
                continue
            if name.endswith(("q_norm.weight", "k_norm.weight")) and not config.has_qk_norm:
                continue
            sizes[f"layers.{index}.{name}"] = shape
    if config.enable_hidden_correction:
        for norm in ("hidden_norm", "embed_norm"):
            sizes[f"{_CORRECTION}{norm}.weight"] = (hidden,)
        for projection in ("gate_proj", "up_proj"):
            sizes[f"{_CORRECTION}{projection}.weight"] = (correction, ("2", "hidden_size"))
        sizes[f"{_CORRECTION}down_proj.weight"] = (hidden, correction)
    if config.mask_token_id is None:
        sizes["mask_embedding"] = (hidden,)
    return sizes


def _public_config(raw: dict[str, Any], tensors: dict[str, torch.Tensor]) -> DflyConfig:
    nested = raw.get("dflash_config") or {}
    layer_ids: Any = raw.get("target_layer_ids") or nested.get("target_layer_ids")
    mask = raw.get("mask_token_id", nested.get("mask_token_id"))
    for key, value in (
        ("target_layer_ids", layer_ids),
        ("mask_token_id", mask),
        ("num_hidden_layers", raw.get("num_hidden_layers")),
        ("target_num_hidden_layers", raw.get("target_num_hidden_layers")),
    ):
        if value is None:
            raise ValueError(f"weights: config.json lacks {key}")
    count = raw.get("num_target_layers", len(layer_ids))
    if count != len(layer_ids):
        raise ValueError(f"weights: num_target_layers is {count}, but target_layer_ids has {len(layer_ids)}")
    if raw.get("target_hidden_size", raw.get("hidden_size")) != raw.get("hidden_size"):
        raise ValueError(
            f"weights: target_hidden_size is {raw['target_hidden_size']}, but hidden_size is {raw['hidden_size']}; "
            "drafters of another width than their target are not supported"
        )
    return DflyConfig(
        **public_sizes(raw, tensors, "layers.0."),
        **public_window(raw),
        num_hidden_layers=raw["num_hidden_layers"],
        block_size=raw.get("block_size", nested.get("block_size", 8)),
        target_layer_ids=tuple(layer_ids),
        target_num_hidden_layers=raw["target_num_hidden_layers"],
        mask_token_id=mask,
        enable_hidden_correction=bool(raw.get("enable_hidden_correction", True)),
        hidden_correction_intermediate_size=raw.get("hidden_correction_intermediate_size"),
    )
