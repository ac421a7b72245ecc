"""What changes with the step: learning rate and stage."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from services.training.config import OptimizerConfig, StageConfig


def rate(step: int, steps: int, config: OptimizerConfig) -> float:
    """Share of the peak learning rate at a 0-based step: linear warm-up, then a cosine down to `final`."""
    warmup = round(config.warmup * steps)
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / max(steps - warmup, 1)
    return config.final + (1 - config.final) * 0.5 * (1 + math.cos(math.pi * done))


def stage_at(step: int, steps: int, stages: Sequence[StageConfig]) -> StageConfig:
    total = sum(stage.share for stage in stages)
    for end, stage in zip(itertools.accumulate(stage.share for stage in stages), stages, strict=True):
        if step < round(end / total * steps):
            return stage
    return stages[-1]
