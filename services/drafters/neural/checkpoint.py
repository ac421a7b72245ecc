"""Checkpoint folders of drafters: config.json, model.safetensors, provenance.json."""

from __future__ import annotations

import json
import math
import os
import pickle
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from services.drafters.neural.config import DecoderConfig

CONFIG, WEIGHTS, PROVENANCE = "config.json", "model.safetensors", "provenance.json"
D2T = "d2t"
_D2T_IN_MODEL = "vocabulary.d2t"

Size = tuple[str, ...]  # names of settings whose product one dimension must be; a number stands for itself
_HEADS, _KV_HEADS = ("num_attention_heads", "head_dim"), ("num_key_value_heads", "head_dim")
_HIDDEN, _FED = ("hidden_size",), ("intermediate_size",)
LAYER_SIZES: dict[str, tuple[Size, ...]] = {
    "input_layernorm.weight": (_HIDDEN,),
    "post_attention_layernorm.weight": (_HIDDEN,),
    "self_attn.q_proj.weight": (_HEADS, _HIDDEN),
    "self_attn.k_proj.weight": (_KV_HEADS, _HIDDEN),
    "self_attn.v_proj.weight": (_KV_HEADS, _HIDDEN),
    "self_attn.o_proj.weight": (_HIDDEN, _HEADS),
    "self_attn.q_proj.bias": (_HEADS,),
    "self_attn.k_proj.bias": (_KV_HEADS,),
    "self_attn.v_proj.bias": (_KV_HEADS,),
    "self_attn.q_norm.weight": (("head_dim",),),
    "self_attn.k_norm.weight": (("head_dim",),),
    "mlp.gate_proj.weight": (_FED, _HIDDEN),
    "mlp.up_proj.weight": (_FED, _HIDDEN),
    "mlp.down_proj.weight": (_HIDDEN, _FED),
}


def save_checkpoint(folder: Path, config: DecoderConfig, model: nn.Module, provenance: Mapping[str, Any]) -> None:
    """Writes the folder anew, whole or not at all; weights as bf16."""
    tensors = {
        D2T if name == _D2T_IN_MODEL else name: tensor.detach().cpu().contiguous()
        for name, tensor in model.state_dict().items()
        if name != _D2T_IN_MODEL or config.draft_vocab_size
    }
    tensors = {name: t.to(torch.bfloat16) if t.is_floating_point() else t for name, t in tensors.items()}
    scratch, old = folder.with_name(folder.name + ".partial"), folder.with_name(folder.name + ".old")
    for leftover in (scratch, old):
        shutil.rmtree(leftover, ignore_errors=True)
    scratch.mkdir(parents=True)
    save_file(tensors, scratch / WEIGHTS, metadata={"format": "pt"})
    (scratch / WEIGHTS).chmod(0o644)  # as the other files; safetensors keeps it to its owner
    for name, content in ((CONFIG, config.model_dump(mode="json")), (PROVENANCE, dict(provenance))):
        (scratch / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    if folder.exists():
        os.replace(folder, old)
    os.replace(scratch, folder)
    shutil.rmtree(old, ignore_errors=True)


def read_config(folder: Path) -> dict[str, Any]:
    """Raises ValueError when there is none."""
    try:
        content = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise ValueError(f"weights: {folder / CONFIG} cannot be read ({error})") from error
    if not isinstance(content, dict):
        raise ValueError(f"weights: {folder / CONFIG} is not a JSON object")
    return content


def read_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Of *.safetensors, else of *.bin without running any code in them. Raises ValueError when there are none."""
    found: dict[str, torch.Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        found.update(load_file(file))
    if found:
        return found
    for file in sorted(folder.glob("*.bin")):
        try:
            content = torch.load(file, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            raise ValueError(f"weights: {file} cannot be read without running code that it holds") from error
        if not isinstance(content, dict):
            raise ValueError(f"weights: {file} holds no tensors by name")
        found.update((name, value) for name, value in content.items() if isinstance(value, torch.Tensor))
    if not found:
        raise ValueError(f"weights: {folder} has neither *.safetensors nor *.bin")
    return found


def strip_prefixes(tensors: Mapping[str, torch.Tensor], prefixes: Iterable[str]) -> dict[str, torch.Tensor]:
    """Without the given prefixes, as often as they lead a name."""
    pattern = re.compile(f"^(?:{'|'.join(re.escape(prefix) for prefix in prefixes)})+")
    return {pattern.sub("", name): tensor for name, tensor in tensors.items()}


def check_sizes(
    tensors: Mapping[str, torch.Tensor], sizes: Mapping[str, tuple[Size, ...]], values: Mapping[str, int]
) -> None:
    """Raises ValueError that names every setting that does not fit its tensor, and every missing tensor."""
    faults = []
    for name, shape in sizes.items():
        tensor = tensors.get(name)
        if tensor is None:
            faults.append(f"the tensor {name} is missing")
            continue
        if tensor.dim() != len(shape):
            faults.append(f"{name} has {tensor.dim()} dimensions instead of {len(shape)}")
            continue
        for axis, keys in enumerate(shape):
            wanted = math.prod(values[key] if key in values else int(key) for key in keys)
            if tensor.shape[axis] != wanted:
                faults.append(f"{' x '.join(keys)} is {wanted} but {name} has size {tensor.shape[axis]} there")
    if faults:
        raise ValueError(f"weights: config.json does not fit the tensors: {'; '.join(faults[:8])}")


def fill(model: nn.Module, tensors: Mapping[str, torch.Tensor]) -> None:
    """Loads tensors whose sizes have been checked. Raises ValueError for one that the model does not know."""
    wanted = {name for name, _ in model.named_parameters()}
    unknown = sorted(set(tensors) - wanted)
    if unknown:
        raise ValueError(f"weights: the tensors {unknown[:5]} are not known")
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name in wanted:
            parameters[name].copy_(tensors[name])


def draft_ids(tensors: dict[str, torch.Tensor], config: DecoderConfig) -> torch.Tensor:
    """Takes d2t out of the tensors; all ids where the drafter has the whole vocabulary."""
    d2t = tensors.pop(D2T, None)
    if not config.draft_vocab_size:
        return torch.arange(config.vocab_size)
    if d2t is None or d2t.numel() != config.draft_vocab_size:
        size = "missing" if d2t is None else f"of {d2t.numel()} ids"
        raise ValueError(f"weights: draft_vocab_size is {config.draft_vocab_size} but d2t is {size}")
    return d2t.to(torch.int64)


def check_target(config: DecoderConfig, hidden_size: int, vocab_size: int) -> None:
    """Raises ValueError for a drafter that was made for another target."""
    for key, found, wanted in (
        ("hidden_size", config.hidden_size, hidden_size),
        ("vocab_size", config.vocab_size, vocab_size),
    ):
        if found != wanted:
            raise ValueError(f"weights: {key} is {found}, but the target's is {wanted}")
