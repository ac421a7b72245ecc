"""Whether a figure stays where it is over hours: slopes that a few outliers cannot bend. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

_WARM_UP = 0.25  # of the time: caches fill, costs are learned
_FEWEST = 8


@dataclass(frozen=True, slots=True)
class Limit:
    """How far a figure may move over the time looked at, and which way is bad."""

    bad: Literal["up", "down"]
    share: float  # of its median
    amount: float = 0.0  # in its own unit; the larger of both counts


@dataclass(frozen=True, slots=True)
class Trend:
    median: float
    drift: float  # over the whole time looked at, in the figure's own unit
    allowed: float
    is_flat: bool


def trend(seconds: Sequence[float], values: Sequence[float | None], limit: Limit) -> Trend | None:
    """Theil and Sen's slope after the warm-up; None where there are too few values to tell."""
    start = seconds[0] + _WARM_UP * (seconds[-1] - seconds[0]) if seconds else 0.0
    known = [(at, value) for at, value in zip(seconds, values, strict=True) if value is not None and at >= start]
    if len(known) < _FEWEST:
        return None
    times, figures = (np.array(column) for column in zip(*known, strict=True))
    first, second = np.triu_indices(len(known), 1)
    slope = float(np.median((figures[second] - figures[first]) / (times[second] - times[first])))
    drift, median = slope * float(times[-1] - times[0]), float(np.median(figures))
    allowed = max(limit.share * abs(median), limit.amount)
    return Trend(median, drift, allowed, (drift if limit.bad == "up" else -drift) <= allowed)
