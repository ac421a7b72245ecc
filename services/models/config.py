"""Which model is served, and under what name."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class ModelConfig(BaseModel):
    """The target model, as the user names it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    target: str = Field(
        default="default",
        min_length=1,
        max_length=4096,
        description="'default', a folder in transformers format, a hub id (owner/name), or a .gguf file.",
    )
    name: str | None = Field(
        default=None,
        min_length=1,
        max_length=256,
        description="The name that clients ask for; taken from the model when absent. 'default' always works too.",
    )
    cache_dir: Path | None = Field(
        default=None,
        description="Where fetched and converted models are kept; ~/.cache/draftfleet when absent.",
    )
