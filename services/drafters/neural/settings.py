"""How drafters with weights are run."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class NeuralSettings(BaseModel):
    """Settings shared by the kinds that have weights."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    weights: Path | None = Field(
        default=None,
        description="Checkpoint folder; absent: the one shipped for the target, without which no pool is started.",
    )
    device: str = Field(
        default="auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$", description="auto: CUDA where there is one."
    )
    precision: Literal["auto", "bf16", "fp32"] = Field(
        default="auto", description="auto: bf16, but fp32 on a CPU without a C compiler for the kernels."
    )
    window: int | None = Field(
        default=None,
        ge=16,
        le=1 << 20,
        description="Newest positions held of a sequence; absent: as trained. Smaller saves memory.",
    )
    max_batch: int = Field(default=32, ge=1, le=1024, description="Sequences computed together.")
