"""What drafters take from their target: embedding and head, and layers to start from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import nn
from transformers import AutoConfig, PretrainedConfig

from services.drafters.neural.fingerprint import fingerprint


@dataclass(frozen=True, slots=True)
class TargetParts:
    """embedding_VD, head_VD [vocabulary, hidden]; one tensor where the target ties them."""

    embedding_VD: torch.Tensor
    head_VD: torch.Tensor


class TargetFolder:
    """Reads single tensors of a target in transformers format.

    Raises ValueError for a folder without safetensors weights and for a missing tensor.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config: PretrainedConfig = AutoConfig.from_pretrained(folder).get_text_config()
        self._file_of = _index(folder)
        if not self._file_of:
            raise ValueError(f"target: {folder} has no safetensors files")

    def tensor(self, name: str, dtype: torch.dtype) -> torch.Tensor:
        file = self._file_of.get(name)
        if file is None:
            raise ValueError(f"target: the checkpoint lacks {name}")
        with safe_open(file, framework="pt") as tensors:
            tensor: torch.Tensor = tensors.get_tensor(name).to(dtype)
        return tensor

    def parts(self, dtype: torch.dtype) -> TargetParts:
        embedding_VD = self.tensor("model.embed_tokens.weight", dtype)
        if self.config.tie_word_embeddings or "lm_head.weight" not in self._file_of:
            return TargetParts(embedding_VD, embedding_VD)
        return TargetParts(embedding_VD, self.tensor("lm_head.weight", dtype))

    def final_norm(self) -> torch.Tensor:
        """[hidden] fp32"""
        return self.tensor("model.norm.weight", torch.float32)

    def layer(self, index: int) -> dict[str, torch.Tensor]:
        """Tensors of one decoder layer, fp32, by their names within the layer."""
        prefix = f"model.layers.{index}."
        names = [name for name in self._file_of if name.startswith(prefix)]
        return {name.removeprefix(prefix): self.tensor(name, torch.float32) for name in names}

    def sizes(self) -> dict[str, Any]:
        """The target's values for the fields of a DecoderConfig."""
        config = self.config
        heads = config.num_attention_heads
        parameters = config.rope_parameters
        layer = f"model.layers.{config.num_hidden_layers - 1}.self_attn."
        return {
            "hidden_size": config.hidden_size,
            "intermediate_size": config.intermediate_size,
            "num_attention_heads": heads,
            "num_key_value_heads": getattr(config, "num_key_value_heads", None) or heads,
            "head_dim": getattr(config, "head_dim", None) or config.hidden_size // heads,
            "rms_norm_eps": config.rms_norm_eps,
            "rope_theta": parameters["rope_theta"],
            "has_qk_norm": layer + "q_norm.weight" in self._file_of,
            "attention_bias": layer + "q_proj.bias" in self._file_of,
            "vocab_size": config.vocab_size,
            "max_position_embeddings": config.max_position_embeddings,
            "target_fingerprint": fingerprint(self.folder),
        }


class Vocabulary(nn.Module):
    """The target's embedding and the rows of its head that can be drafted; frozen, and never stored.

    d2t [V'] int64: the target's id of each draft id, ascending, so that the first among
    equal logits is the lowest id of the target too. The one tensor here that is stored.
    """

    d2t: torch.Tensor
    embedding_VD: torch.Tensor
    head_UD: torch.Tensor  # U = V'

    def __init__(self, parts: TargetParts, d2t: torch.Tensor) -> None:
        super().__init__()
        check_d2t(d2t, parts.head_VD.shape[0])
        is_whole = d2t.numel() == parts.head_VD.shape[0]
        self.register_buffer("d2t", d2t.to(torch.int64))
        self.register_buffer("embedding_VD", parts.embedding_VD, persistent=False)
        self.register_buffer("head_UD", parts.head_VD if is_whole else parts.head_VD[d2t], persistent=False)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Embeddings of the target's ids: [..., hidden]."""
        return nn.functional.embedding(tokens, self.embedding_VD)

    def logits(self, y: torch.Tensor) -> torch.Tensor:
        """[..., hidden] -> [..., V'], over draft ids."""
        # As one matrix: of a batch of views torch would copy the head for each.
        flat = nn.functional.linear(y.reshape(-1, y.shape[-1]), self.head_UD.to(y.dtype))
        return flat.view(*y.shape[:-1], flat.shape[-1])


def check_d2t(d2t: torch.Tensor, vocabulary: int) -> None:
    """Raises ValueError unless `d2t` maps draft ids to distinct ids of the target, ascending."""
    if d2t.dim() != 1 or not d2t.numel():
        raise ValueError(f"d2t: the shape {list(d2t.shape)} is not a list of token ids")
    if bool((d2t[1:] <= d2t[:-1]).any()) or int(d2t[0]) < 0 or int(d2t[-1]) >= vocabulary:
        raise ValueError(f"d2t: it must ascend, from 0 to at most {vocabulary - 1}")


def _index(folder: Path) -> dict[str, Path]:
    """Tensor name -> file."""
    listing = folder / "model.safetensors.index.json"
    if listing.is_file():
        weight_map: dict[str, str] = json.loads(listing.read_text(encoding="utf-8"))["weight_map"]
        return {name: folder / file for name, file in weight_map.items()}
    found: dict[str, Path] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            found.update(dict.fromkeys(tensors.keys(), file))
    return found
