"""What a round with a drafter kind takes, in plain steps: for those who choose between kinds. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from services.dcut.cluster.messages import RoundCost
from services.dcut.costs.steps import Floats

_SMOOTHING = 0.05


@dataclass(slots=True)
class _Habit:
    """What sequences with this kind do in a round, on average."""

    asked: float = 0.0  # share of them that are asked for a draft
    longest: float = 0.0  # draft tokens of such an ask
    kept: float = 0.0  # draft rows verified for each


class RoundCosts:
    """As if every sequence of a step had that kind, so that kinds can be compared in a mixed batch."""

    def __init__(self) -> None:
        self._habits: dict[str, _Habit] = {}

    def asked(self, kind: str, sequences: int, asked: int, longest: int) -> None:
        """Of so many sequences with the kind, so many were asked, for at most `longest` tokens each."""
        habit = self._habits.setdefault(kind, _Habit())
        habit.asked += _SMOOTHING * (asked / sequences - habit.asked)
        if asked:
            habit.longest += _SMOOTHING * (longest - habit.longest) if habit.longest else longest

    def kept(self, kind: str, sequences: int, rows: int) -> None:
        """Of so many sequences with the kind, so many draft rows were verified together."""
        habit = self._habits.setdefault(kind, _Habit())
        habit.kept += _SMOOTHING * (rows / sequences - habit.kept)

    def plain_steps(
        self,
        batch: int,
        step_seconds: Callable[[Floats], Floats],
        draft_seconds: Callable[[str, float, float], float],
        hidden_s: float,
    ) -> tuple[RoundCost, ...]:
        """At a batch of so many sequences. `hidden_s`: what the target does anyway while it waits."""
        costs = []
        for kind, habit in self._habits.items():
            with_s, plain_s = step_seconds(np.array([batch * (1 + habit.kept), float(batch)])).tolist()
            # Asking now and then is not asking fewer each time: waits are averaged, not shortened.
            wait_s = max(draft_seconds(kind, float(batch), habit.longest) - hidden_s, 0.0) * habit.asked
            costs.append(RoundCost(kind, (with_s + wait_s) / plain_s))
        return tuple(costs)
