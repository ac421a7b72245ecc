"""Keeps a table of step times true to what steps take now."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from services.dcut.costs.steps import UNMEASURED, Floats, StepCosts, along

_ALL_RATE = 0.05  # of a deviation that is taken over for all row counts
_OWN_RATE = 0.1  # and for the two nearest measured ones
_FORGET = 0.999  # a count's own correction fades while others are seen
_MAX_DEVIATION = math.log(2.0)  # of one step: a pause of the machine is not a new speed
_MAX_OWN = math.log(2.0)
_PREFILL_RATE = 0.05
_MAX_PREFILL = 4.0


class CorrectedCosts:
    """A table and factors learned from steps: one for all row counts, one for each, one for prompts.

    Corrected times are monotone, too. Belongs to one thread.
    """

    def __init__(self, table: StepCosts | None = None) -> None:
        """Without a table a shape is assumed, and the first step tells the speed."""
        self.is_measured = table is not None
        self.table = table or UNMEASURED
        self._log_all = 0.0
        self._log_R: Floats = np.zeros_like(self.table.rows_R)
        self._prefill_scale = 1.0
        self._has_speed = self.is_measured
        self.num_observed = 0
        self.error = 0.0  # smoothed |log(measured / expected)|

    @property
    def factor(self) -> float:
        """Steps take so many times what the table says, all row counts together."""
        return math.exp(self._log_all)

    @property
    def prefill_factor(self) -> float:
        """Prompt rows add so many times what the table says."""
        return self._prefill_scale

    def seconds(self, rows: npt.ArrayLike, context: float, prefill: float = 0.0) -> Floats:
        """Expected time of steps with so many decoding rows, of any shape."""
        slope = self.table.slope * math.exp(self._log_all + float(self._log_R[-1]))
        return along(np.asarray(rows, np.float64), self.table.rows_R, self._line(context, prefill), slope)

    def observe(self, rows: int, context: float, prefill: int, seconds: float) -> None:
        """A step has taken so long."""
        expected = float(self.seconds(rows, context, prefill))
        deviation = math.log(max(seconds, 1e-6) / expected)
        self.num_observed += 1
        self.error += 0.02 * (abs(deviation) - self.error)
        deviation = min(max(deviation, -_MAX_DEVIATION), _MAX_DEVIATION)
        if prefill > 0:
            # What rows alone take is learned from steps without prompts.
            scaled = self._prefill_scale * math.exp(_PREFILL_RATE * deviation)
            self._prefill_scale = min(max(scaled, 1 / _MAX_PREFILL), _MAX_PREFILL)
            return
        if not self._has_speed:
            self._log_all, self._has_speed = math.log(max(seconds, 1e-6) / expected), True
            return
        grid = self.table.rows_R
        self._log_all += _ALL_RATE * deviation
        self._log_R *= _FORGET
        right = min(int(np.searchsorted(grid, rows)), len(grid) - 1)
        left = max(right - 1, 0)
        share = 1.0 if right == left or rows >= grid[right] else float((rows - grid[left]) / (grid[right] - grid[left]))
        self._log_R[right] += _OWN_RATE * share * deviation
        self._log_R[left] += _OWN_RATE * (1.0 - share) * deviation
        np.clip(self._log_R, -_MAX_OWN, _MAX_OWN, out=self._log_R)

    def _line(self, context: float, prefill: float) -> Floats:
        line_R = self.table.line(context, prefill, self._prefill_scale) * np.exp(self._log_all + self._log_R)
        rising: Floats = np.maximum.accumulate(line_R)
        return rising
