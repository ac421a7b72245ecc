"""Stops a run whose loss has left the road."""

from __future__ import annotations

import math
from dataclasses import dataclass

_SMOOTH = 0.98
_TOO_MUCH = 2.0
_SLACK = 0.05  # for losses near 0


class TrainingDiverged(RuntimeError):
    """The loss is no number any more, or grows without end."""


@dataclass(slots=True)
class LossWatch:
    """Compares the smoothed loss with its lowest value."""

    smoothed: float = math.nan
    lowest: float = math.inf

    def add(self, loss: float, step: int) -> None:
        """Takes in the loss of a step, counted from 1. Raises TrainingDiverged."""
        if not math.isfinite(loss):
            raise TrainingDiverged(
                f"the loss is {loss} at step {step}; the newest checkpoint is from before. "
                "Lower optimizer.matrix_lr or optimizer.lr, or raise optimizer.warmup"
            )
        known = self.smoothed
        self.smoothed = loss if math.isnan(known) else _SMOOTH * known + (1 - _SMOOTH) * loss
        self.lowest = min(self.lowest, self.smoothed)
        if self.smoothed > _TOO_MUCH * self.lowest + _SLACK:
            raise TrainingDiverged(
                f"the loss grows: {self.smoothed:.3f} on average at step {step} after {self.lowest:.3f}. "
                "Lower optimizer.matrix_lr or optimizer.lr"
            )
