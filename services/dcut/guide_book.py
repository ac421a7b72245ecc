"""The newest budget as a target's guide."""

from __future__ import annotations

from services.dcut.link import FleetLink
from services.dcut.local.guide import NO_GUIDE, Guide, guide_of


class GuideBook:
    """Past a budget's time to live the target decides alone. Called in one thread, in every step."""

    def __init__(self, link: FleetLink) -> None:
        self._link = link
        self._version = -1
        self._guide = NO_GUIDE

    def __call__(self) -> Guide:
        if not self._link.is_fresh:
            return NO_GUIDE
        budget = self._link.budget
        if budget.version != self._version:
            self._version, self._guide = budget.version, guide_of(budget)
        return self._guide
