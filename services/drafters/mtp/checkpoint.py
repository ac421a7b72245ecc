"""MTP checkpoints: our own, and those that keep the layer among or beside the target's."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch

from services.drafters.mtp.config import MtpConfig
from services.drafters.mtp.model import MtpModel
from services.drafters.neural.checkpoint import (
    LAYER_SIZES,
    check_sizes,
    check_target,
    draft_ids,
    fill,
    read_config,
    read_tensors,
)
from services.drafters.neural.frozen import TargetFolder
from services.drafters.neural.public import public_sizes, public_window

_log = logging.getLogger(__name__)
_ANCHOR = "eh_proj.weight"  # its prefix is that of the whole layer
_OUTER = ("enorm.weight", "hnorm.weight", "eh_proj.weight", "final_layernorm.weight")
_NOT_OURS = ("embed_tokens.weight", "shared_head.head.weight", "lm_head.weight", "rotary_emb.inv_freq", "t2d")


def load_mtp(folder: Path, target: TargetFolder, dtype: torch.dtype = torch.float32) -> MtpModel:
    """The drafter of a checkpoint folder, with embedding and head of its target.

    Raises ValueError that names the setting or tensor that is wrong.
    """
    raw, tensors = read_config(folder), read_tensors(folder)
    if raw.get("kind") == "mtp":
        config = MtpConfig.model_validate(raw)
    else:
        tensors = _from_public(tensors)
        config = _public_config(raw, tensors)
    check_target(config, target.config.hidden_size, target.config.vocab_size)
    d2t = draft_ids(tensors, config)
    check_sizes(tensors, _sizes(config), config.model_dump())
    model = MtpModel(config, target.parts(dtype), d2t)
    fill(model, tensors)
    return model.to(dtype)


def _sizes(config: MtpConfig) -> dict[str, Any]:
    hidden = ("hidden_size",)
    sizes: dict[str, Any] = dict.fromkeys(_OUTER, (hidden,))
    sizes[_ANCHOR] = (hidden, ("2", "hidden_size"))
    for name, shape in LAYER_SIZES.items():
        if _is_used(name, config):
            sizes[f"layer.{name}"] = shape
    return sizes


def _is_used(name: str, config: MtpConfig) -> bool:
    if name.endswith(".bias"):
        return config.attention_bias
    return config.has_qk_norm or not name.endswith(("q_norm.weight", "k_norm.weight"))


def _from_public(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Our names for the tensors that stand beside eh_proj."""
    prefixes = [name.removesuffix(_ANCHOR) for name in tensors if name.endswith(_ANCHOR)]
    if len(prefixes) != 1:
        raise ValueError(f"weights: there must be one {_ANCHOR}; there are {len(prefixes)}")
    found: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        if not name.startswith(prefixes[0]) or name.endswith(_NOT_OURS):
            continue
        inner = name.removeprefix(prefixes[0]).removeprefix("layers.0.")
        if inner == "shared_head.norm.weight":
            inner = "final_layernorm.weight"
        found[inner if inner in _OUTER else f"layer.{inner}"] = tensor
    return found


def _public_config(raw: dict[str, Any], tensors: dict[str, torch.Tensor]) -> MtpConfig:
    if "draft_input_postnorm" not in raw:
        _log.warning("draft_input_postnorm is not in config.json; hidden states are taken before the final norm")
    return MtpConfig(
        **public_sizes(raw, tensors, "layer."),
        **public_window(raw),
        num_hidden_layers=1,
        draft_input_postnorm=bool(raw.get("draft_input_postnorm", False)),
        num_steps=int(raw.get("num_steps", 3)),
    )
