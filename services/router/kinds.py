"""The order of drafter kinds for a request, from a budget. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from services.dcut.messages import Budget
from services.requests.task import Task
from services.router.bandit import Arm, KindBandit
from services.router.config import BanditConfig


class KindChooser:
    """The fleet's record decides where there is one, priors where not; of equals the first of `preference`."""

    def __init__(self, preference: Sequence[str], config: BanditConfig) -> None:
        self._preference = preference
        self._prior_costs = {str(kind): cost for kind, cost in config.prior_costs.items()}
        self._bandit = KindBandit(config)
        self._unserved: set[str] = set()

    def order(self, task: Task, alive: Collection[str], budget: Budget) -> tuple[str, ...]:
        """Kinds with a healthy replica, best first. Call once for each request that leaves the choice to us."""
        told = {kind.kind: kind.plain_steps for kind in budget.kinds if kind.plain_steps}
        costs = {kind: told.get(kind, self._prior_costs.get(kind, 1.0)) for kind in self._preference}
        arms = {
            entry.kind: Arm(entry.samples, entry.rounds, entry.tokens, entry.squares)
            for entry in budget.guidance
            if entry.task_class == (task.kind if task.confidence else "")
        }
        self.note(self._bandit.ranked(task.kind, costs, arms)[0], alive)
        return self._bandit.order(task.kind, {kind: cost for kind, cost in costs.items() if kind in alive}, arms)

    def note(self, wanted: str, alive: Collection[str]) -> None:
        """A request would have had this kind."""
        if wanted not in alive:
            self._unserved.add(wanted)

    def take_unserved(self) -> tuple[str, ...]:
        """Kinds that were wanted since the last call and had no replica."""
        unserved, self._unserved = tuple(sorted(self._unserved)), set()
        return unserved
