"""A budget of the D-cut actor as one target follows it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from services.dcut.costs.steps import Floats
from services.dcut.local.rechoice import Promise
from services.dcut.messages import Budget
from services.requests.speculation import MAX_DRAFT_TOKENS

Group = tuple[str, str]  # kind, class

_TRUSTED_ROUNDS = 64.0


@dataclass(frozen=True, slots=True)
class Guide:
    """Without entries it changes nothing: the target then decides by what it has seen itself."""

    max_draft: Mapping[Group, int] = field(default_factory=dict)  # 0: turned away
    acceptance: Mapping[Group, Floats] = field(default_factory=dict)  # [J] by position, given those before
    price_s: Mapping[str, float] = field(default_factory=dict)  # by kind, of a draft token
    promises: Mapping[Group, Promise] = field(default_factory=dict)

    def limit(self, kind: str, task_class: str) -> int:
        """Draft tokens that are worth asking this kind for."""
        return self.max_draft.get((kind, task_class), MAX_DRAFT_TOKENS)


NO_GUIDE = Guide()


def guide_of(budget: Budget) -> Guide:
    """What a budget that is still fresh says."""
    costs = {kind.kind: kind.plain_steps for kind in budget.kinds}
    max_draft: dict[Group, int] = {}
    acceptance: dict[Group, Floats] = {}
    promises: dict[Group, Promise] = {}
    for entry in budget.guidance:
        group = (entry.kind, entry.task_class)
        max_draft[group] = entry.max_draft if entry.is_admitted else 0
        if entry.acceptance:
            rates_J = np.full(MAX_DRAFT_TOKENS, entry.acceptance[-1])  # positions never reached are like the last
            rates_J[: len(entry.acceptance)] = entry.acceptance
            acceptance[group] = rates_J
        if entry.rounds >= _TRUSTED_ROUNDS and costs.get(entry.kind):
            promises[group] = Promise(entry.tokens / entry.rounds, costs[entry.kind])
    return Guide(max_draft, acceptance, {kind.kind: kind.price_s for kind in budget.kinds if kind.price_s}, promises)
