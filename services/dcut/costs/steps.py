"""How long a step of the target takes, as measured: by its rows, their context, and prompt rows beside them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]

MAX_SAMPLES = 4096


@dataclass(frozen=True, slots=True)
class StepSample:
    """One measured step."""

    rows: int  # of decoding sequences: anchors and drafts
    context: int  # positions before such a row, on average
    prefill: int  # rows of prompts in the same step
    seconds: float

    def __post_init__(self) -> None:
        for name, low in (("rows", 1), ("context", 0), ("prefill", 0)):
            if getattr(self, name) < low:
                raise ValueError(f"{name}: {getattr(self, name)} is out of range; it must be at least {low}")
        if not 0 < self.seconds < float("inf"):
            raise ValueError(f"seconds: {self.seconds} is out of range; it must be greater than 0 and finite")


class StepCosts:
    """Step time C(rows, context, prefill), monotone in each of the three.

    It is the time by rows at the shortest context and without prompts, plus what a longer
    context adds to it, plus what prompt rows add. Rows measured on both sides of the edges at
    which kernels change keep a staircase a staircase: between two measured counts the time is
    interpolated, past the last it goes on with the last slope. A surcharge that was measured
    for fewer rows counts as that of the nearest larger count.

    Legend: R rows grid, C contexts, P prefill rows.
    """

    def __init__(self, samples: Iterable[StepSample]) -> None:
        """Raises ValueError when no sample has the shortest context and no prompt, or there are too many."""
        self.samples = tuple(sorted(samples, key=lambda s: (s.context, s.prefill, s.rows)))
        if len(self.samples) > MAX_SAMPLES:
            raise ValueError(f"samples: {len(self.samples)} are too many; at most {MAX_SAMPLES} are allowed")
        shortest = min((s.context for s in self.samples), default=0)
        base = {s.rows: s.seconds for s in self.samples if s.context == shortest and not s.prefill}
        if not base:
            raise ValueError("samples: none has the shortest context and no prompt rows; at least one must")
        self.rows_R: Floats = np.array(sorted(base), np.float64)
        self._base_R: Floats = np.maximum.accumulate(np.array([base[int(r)] for r in self.rows_R]))
        self.slope = 0.0  # seconds a row past the largest count, the same for every context
        if len(self.rows_R) > 1:
            self.slope = float((self._base_R[-1] - self._base_R[-2]) / (self.rows_R[-1] - self.rows_R[-2]))
        self.contexts_C, self._context_CR = self._surcharges("context", float(shortest))
        self.prefills_P, self._prefill_PR = self._surcharges("prefill", 0.0)

    @property
    def max_rows(self) -> int:
        """The largest row count that was measured."""
        return int(self.rows_R[-1])

    def line(self, context: float, prefill: float, prefill_scale: float = 1.0) -> Floats:
        """Seconds at the measured row counts `rows_R`: [R], rising. `prefill_scale` corrects what prompts add."""
        line_R = self._base_R + between(self.contexts_C, self._context_CR, context)
        if prefill > 0:
            line_R = line_R + prefill_scale * self._added_by_prompts(prefill)
        rising: Floats = np.maximum.accumulate(line_R)
        return rising

    def seconds(self, rows: npt.ArrayLike, context: float, prefill: float = 0.0) -> Floats:
        """Time of steps with so many decoding rows, of any shape."""
        return along(np.asarray(rows, np.float64), self.rows_R, self.line(context, prefill), self.slope)

    def _added_by_prompts(self, prefill: float) -> Floats:
        if len(self.prefills_P) > 1:
            return between(self.prefills_P, self._prefill_PR, prefill)
        return (
            along(self.rows_R + prefill, self.rows_R, self._base_R, self.slope) - self._base_R
        )  # unmeasured: rows like others

    def _surcharges(self, axis: str, first: float) -> tuple[Floats, Floats]:
        """What each measured value of an axis adds to the base line: values [A] and seconds [A, R]."""
        other = "prefill" if axis == "context" else "context"
        lowest = min(getattr(s, other) for s in self.samples)
        by_value: dict[int, dict[int, float]] = {}
        for sample in self.samples:
            if getattr(sample, axis) > first and getattr(sample, other) == lowest:
                by_value.setdefault(getattr(sample, axis), {})[sample.rows] = sample.seconds
        values, lines = [first], [np.zeros_like(self._base_R)]
        for value in sorted(by_value):
            measured = by_value[value]
            rows_M = np.array(sorted(measured), np.float64)
            extra_M = np.array([measured[int(r)] for r in rows_M]) - along(
                rows_M, self.rows_R, self._base_R, self.slope
            )
            at_R = np.minimum(np.searchsorted(rows_M, self.rows_R), len(rows_M) - 1)  # nearest larger, else the largest
            values.append(float(value))
            lines.append(np.maximum(lines[-1], extra_M[at_R]))
        return np.array(values), np.stack(lines)


def along(at: Floats, grid: Floats, line: Floats, slope: float) -> Floats:
    """Piecewise linear through (grid, line); the first value before the grid, and `slope` after it."""
    found: Floats = np.interp(at, grid, line) + slope * np.maximum(at - grid[-1], 0.0)
    return found


def between(grid: Floats, lines: Floats, at: float) -> Floats:
    """The line at a value of the grid's axis, of `lines` [A, R]; after the grid it goes on as between its last two."""
    if len(grid) == 1 or at <= grid[0]:
        first: Floats = lines[0]
        return first
    index = min(int(np.searchsorted(grid, at)), len(grid) - 1)
    share = (at - grid[index - 1]) / (grid[index] - grid[index - 1])
    found: Floats = lines[index - 1] + share * (lines[index] - lines[index - 1])
    return found


# The shape of a small model on a CPU, for the time before anything has been measured.
UNMEASURED = StepCosts(StepSample(rows, 256, 0, seconds) for rows, seconds in ((1, 0.02), (8, 0.024), (64, 0.06)))
