"""How many replicas of a drafter kind the work calls for. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from services.dcut.cluster.config import ClusterConfig

_IDLE = 0.02  # replicas' worth of work that probes alone make


@dataclass(slots=True)
class Demand:
    """Of one kind. The wanted number rises at once and falls when less has been enough for a while."""

    wanted: int = 0
    less_for_s: float = 0.0  # how long fewer would have been enough
    most_since: int = 0  # that were called for in that time

    def observe(
        self, replicas: int, busy: float, is_short: bool, unserved: int, passed_s: float, config: ClusterConfig
    ) -> None:
        """`busy`: smoothed mean share; `is_short`: drafts have a price; `unserved`: requests that found no replica."""
        work = replicas * busy
        called = math.ceil(work / config.busy_wanted - 1e-9) if work > _IDLE else 0
        if is_short:
            called = max(called, replicas + 1)  # work that was priced away is not seen in `busy`
        if unserved and not replicas:
            called = max(called, 1)
        if called >= self.wanted:
            self.wanted, self.less_for_s, self.most_since = called, 0.0, 0
            return
        self.less_for_s += passed_s
        self.most_since = max(self.most_since, called)
        if self.less_for_s >= config.fewer_after_s:
            self.wanted, self.less_for_s, self.most_since = self.most_since, 0.0, 0
