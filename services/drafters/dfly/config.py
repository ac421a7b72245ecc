"""Settings of a DFly drafter, stored beside its weights."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from services.drafters.neural.config import DecoderConfig


class DflyConfig(DecoderConfig):
    """Decoder layers that fill a whole block at once from several of the target's hidden states."""

    kind: Literal["dfly"] = "dfly"
    num_hidden_layers: int = Field(default=2, ge=1, le=16, description="Decoder layers of the drafter.")
    block_size: int = Field(default=8, ge=2, le=17, description="Slots of a block: the anchor and the draft.")
    target_layer_ids: tuple[int, ...] = Field(
        min_length=1, max_length=64, description="Captured outputs of the target's layers, 0-based, ascending."
    )
    target_num_hidden_layers: int = Field(ge=1, le=4096, description="Layers of the target.")
    mask_token_id: int | None = Field(
        default=None, ge=0, description="Token whose embedding fills the block; absent: a learned vector."
    )
    enable_layer_fusion: bool = Field(
        default=True, description="Each layer sees its own weighting of the captured outputs beside the common one."
    )
    enable_hidden_correction: bool = Field(
        default=True, description="Each slot is corrected by the token chosen before it."
    )
    hidden_correction_intermediate_size: int | None = Field(
        default=None, ge=1, le=1 << 18, description="Width of the correction; absent: hidden_size."
    )

    @model_validator(mode="after")
    def _layers_fit(self) -> DflyConfig:
        ids = self.target_layer_ids
        if list(ids) != sorted(set(ids)) or ids[0] < 0 or ids[-1] >= self.target_num_hidden_layers:
            raise ValueError(
                f"target_layer_ids: {list(ids)} must ascend, from 0 to at most {self.target_num_hidden_layers - 1}"
            )
        if self.mask_token_id is not None and self.mask_token_id >= self.vocab_size:
            raise ValueError(
                f"mask_token_id: {self.mask_token_id} is out of range; ids must be below {self.vocab_size}"
            )
        return self

    @property
    def correction_size(self) -> int:
        return self.hidden_correction_intermediate_size or self.hidden_size


def uniform_layers(num_target_layers: int, count: int = 5) -> tuple[int, ...]:
    """`count` layers, evenly spread from layer 1 to the last but two; fewer where the target is shallow."""
    first, last = min(1, num_target_layers - 1), max(num_target_layers - 3, min(1, num_target_layers - 1))
    spread = [round(first + (last - first) * i / max(count - 1, 1)) for i in range(count)]
    return tuple(sorted(set(spread)))
