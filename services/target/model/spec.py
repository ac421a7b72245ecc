"""The shape of a target model, as the engine needs to know it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transformers import PretrainedConfig

BLOCK = 16  # positions in a KV block; the kernels and the prefix cache share it


@dataclass(frozen=True, slots=True)
class ModelSpec:
    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    max_positions: int
    windows: tuple[int, ...]  # sliding window of each layer; 0: full attention
    eos_ids: tuple[int, ...]

    @classmethod
    def from_config(cls, config: PretrainedConfig, eos_ids: tuple[int, ...]) -> ModelSpec:
        """Reads a transformers text configuration.

        Raises ValueError when it lacks a size or has an attention that is not causal softmax over one KV cache.
        """
        text = config.get_text_config()
        missing = [
            n for n in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads") if not hasattr(text, n)
        ]
        if missing:
            raise ValueError(f"target: its configuration lacks {', '.join(missing)}; a decoder-only model is needed")
        heads = text.num_attention_heads
        kv_heads = _declared(text, "num_key_value_heads") or heads
        if heads % kv_heads:
            raise ValueError(f"target: {heads} attention heads cannot share {kv_heads} key-value heads evenly")
        return cls(
            vocabulary=text.vocab_size,
            hidden=text.hidden_size,
            layers=text.num_hidden_layers,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=_declared(text, "head_dim") or text.hidden_size // heads,
            max_positions=_max_positions(text),
            windows=_windows(text),
            eos_ids=eos_ids,
        )


def _declared(text: PretrainedConfig, name: str) -> Any:
    """A setting that the family has, or None; files may hold settings that it ignores."""
    known = hasattr(type(text), name) or name in type(text).attribute_map
    try:
        return getattr(text, name, None) if known else None
    except Exception as error:  # its own kind of error where layers differ in it
        raise ValueError(f"target: {name} is not one value for all layers ({error})") from error


def _max_positions(text: PretrainedConfig) -> int:
    """Without the positions past which longrope turns all keys by other angles, cached ones too."""
    limit = int(getattr(text, "max_position_embeddings", None) or 2048)
    parameters = getattr(text, "rope_parameters", None) or {}
    for kind in (parameters, *(value for value in parameters.values() if isinstance(value, dict))):
        if kind.get("rope_type") == "longrope":
            limit = min(limit, int(kind["original_max_position_embeddings"]))
    return limit


def _windows(text: PretrainedConfig) -> tuple[int, ...]:
    kinds = _declared(text, "layer_types")
    if kinds is None:
        return (int(_declared(text, "sliding_window") or 0),) * int(text.num_hidden_layers)
    unknown = set(kinds) - {"full_attention", "sliding_attention"}
    if unknown:
        raise ValueError(
            f"target: layer_types {sorted(unknown)} are not supported; allowed are full_attention and sliding_attention"
        )
    window = int(getattr(text, "sliding_window", None) or 0)
    return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)
