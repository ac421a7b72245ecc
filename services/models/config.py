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
    sha256: str | None = Field(
        default=None,
        pattern=r"^[0-9a-fA-F]{64}$",
        description="Digest that `draftfleet models digest` tells of the model's folder; checked when it is fetched "
        "ahead: by `draftfleet serve`, by `draftfleet models fetch`, and before a pod starts. None: not checked.",
    )
    cache_dir: Path | None = Field(
        default=None,
        description="Where fetched and converted models are kept; ~/.cache/draftfleet when absent.",
    )
