"""When a sequence without drafts is asked for one all the same. Pure.

Nobody else would find out that drafts have become worth it again. Probes cost time, so they are
paid from an allowance: a small share of the tokens that the steps emit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

_SAVED_STEPS = 64  # more allowance than that of so many steps, or than a probe costs, is not put by


@dataclass(slots=True)
class Idle:
    """How a sequence waits for its next probe."""

    pause: int  # steps without a draft before it may be probed
    steps: int = 0  # since its last draft

    def reset(self, pause: int) -> None:
        self.pause, self.steps = pause, 0


class Probing:
    """Chooses among idle sequences, step by step."""

    def __init__(self, share: float, first: int, last: int) -> None:
        """`share` of the tokens is what probes may cost; `first` and `last` bound the pauses between a sequence's."""
        self.first = first
        self._share = share
        self._last = last
        self._allowance = 0.0

    def due(self, idle: Sequence[Idle], batch: int, cost: Callable[[int], float]) -> list[bool]:
        """Which of the sequences to probe in this step; it counts as a step without a draft for the others.

        `cost` gives the tokens that probing so many of them would lose. One that has been idle for `last`
        steps is probed whatever that costs; with every probe a sequence's pause doubles.
        """
        income = self._share * batch
        # Sequences come and go, so a dear probe has to be saved for by all of them: else none would ever be made.
        most = max(_SAVED_STEPS * income, cost(1)) if idle else _SAVED_STEPS * income
        self._allowance = min(self._allowance + income, most)
        for entry in idle:
            entry.steps += 1
        longest_first = sorted(range(len(idle)), key=lambda at: -idle[at].steps)
        number = sum(entry.steps >= entry.pause for entry in idle)
        while number and cost(number) > self._allowance:
            number //= 2
        due = [False] * len(idle)
        for at in longest_first:
            entry = idle[at]
            if entry.steps >= self._last or (number and entry.steps >= entry.pause):
                due[at], number = True, max(number - 1, 0)
                entry.reset(min(2 * entry.pause, self._last))
        if any(due):
            self._allowance -= cost(sum(due))
        return due
