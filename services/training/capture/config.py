"""Settings of the capture of hidden states."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class CaptureConfig(BaseModel):
    """What the target's own forward pass leaves on disk for training."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_document: int = Field(
        default=512, ge=16, le=32768, description="Tokens of a document; dialogues are cut, files are split there."
    )
    top_tokens: int = Field(
        default=32, ge=1, le=1024, description="Likeliest tokens kept of the teacher's distribution."
    )
    feature_layers: int = Field(
        default=5, ge=0, le=64, description="Layer outputs for DFly, evenly spread; 0: none, for MTP alone."
    )
    shard_tokens: int = Field(default=16384, ge=64, le=1 << 20, description="Tokens of a shard, about.")
    pass_rows: int = Field(default=1024, ge=16, le=65536, description="Token rows of a forward pass, about.")
    max_disk_mb: int = Field(
        default=16384, ge=16, le=1 << 24, description="Capture stops before its folder takes more than this."
    )
    library_tokens: int = Field(
        default=0, ge=0, le=1 << 34, description="Tokens of Python's own library captured besides the dialogues."
    )
    held_out: int = Field(default=48, ge=1, le=65536, description="Dialogues kept for the quick evaluation.")
