"""What to do when the replicas of a drafter kind have more work than time. Pure.

First each draft token gets a price, in seconds that a target must value it at: the least useful
drafts go first, everywhere by the same measure. When the highest price does not help, the class that
gains least by its drafts is turned away; as soon as there is room, the best of those comes back.
Each step of both needs the business to have been above or below a band for a while.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.dcut.cluster.config import ClusterConfig

_LOWEST_PRICE_S = 1e-5
_GROWTH = 2.0  # of the price, for every second above the band; below, it falls as fast


@dataclass(slots=True)
class Shortage:
    """Of one kind."""

    busy: float = 0.0  # smoothed
    price_s: float = 0.0
    turned_away: list[str] = field(default_factory=list)  # classes, in the order in which they were
    held_s: float = 0.0  # since the last change of those

    def observe(self, busy: float, passed_s: float, gains: Mapping[str, float], config: ClusterConfig) -> None:
        """`busy` is the mean of the replicas; `gains` tells by class the tokens a round that its drafts add."""
        share = min(passed_s / config.smoothing_s, 1.0)
        self.busy += share * (min(busy, 1.0) - self.busy)
        self.held_s += passed_s
        if self.busy > config.busy_high:
            self.price_s = min(max(self.price_s, _LOWEST_PRICE_S) * _GROWTH**passed_s, config.max_price_s)
            if self.price_s >= config.max_price_s and self.held_s >= config.hold_s:
                self._turn_away(gains)
        elif self.busy < config.busy_low:
            if self.turned_away:
                if self.held_s >= config.hold_s:
                    self._readmit(gains)
                return  # the price comes down when everyone is back
            self.price_s /= _GROWTH**passed_s
            if self.price_s < _LOWEST_PRICE_S:
                self.price_s = 0.0

    def admits(self, task_class: str) -> bool:
        return task_class not in self.turned_away

    def _turn_away(self, gains: Mapping[str, float]) -> None:
        """The last class stays: with nobody to draft for, nobody would see that there is room again."""
        admitted = [task_class for task_class in gains if self.admits(task_class)]
        if len(admitted) > 1:
            self.turned_away.append(min(admitted, key=lambda task_class: (gains[task_class], task_class)))
            self.held_s = 0.0

    def _readmit(self, gains: Mapping[str, float]) -> None:
        back = max(self.turned_away, key=lambda task_class: (gains.get(task_class, 0.0), task_class))
        self.turned_away.remove(back)
        self.held_s = 0.0
