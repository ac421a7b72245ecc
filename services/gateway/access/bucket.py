"""A rate that may run into debt. Pure."""

from __future__ import annotations

_PERIOD_S = 60.0


class Bucket:
    """Lets through `limit` units a minute, all of them at once after a quiet minute.

    Libraries for rate limits want the cost beforehand; that of an answer is known when it has been written.
    So what it cost is taken afterwards, below zero too, and the debt is waited off.
    """

    def __init__(self, limit: int, now: float) -> None:
        self.limit = limit
        self._level = float(limit)
        self._at = now

    def wait_s(self, now: float, needed: float = 1.0) -> float:
        """Until `needed` units are there; 0 when they are."""
        self._fill(now)
        return max(0.0, (needed - self._level) * _PERIOD_S / self.limit)

    def take(self, now: float, units: float) -> None:
        self._fill(now)
        self._level -= units

    def _fill(self, now: float) -> None:
        passed, self._at = max(now - self._at, 0.0), max(now, self._at)
        self._level = min(float(self.limit), self._level + passed * self.limit / _PERIOD_S)
