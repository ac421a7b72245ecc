"""What decode rounds with each drafter kind came to, for the fleet to learn from. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from services.dcut.cluster.messages import Use
from services.dcut.costs.steps import Floats
from services.dcut.local.acceptance import reached
from services.dcut.local.selection import Counts
from services.requests.speculation import MAX_DRAFT_TOKENS

_SAMPLE_ROUNDS = 32  # of a long request count as one sample


@dataclass(slots=True)
class Run:
    """A sequence's rounds with the drafter kind it has now."""

    rounds: int = 0
    tokens: int = 0
    counted: tuple[int, int] = (0, 0)  # rounds and tokens of it that the tally has


@dataclass(slots=True)
class _Sums:
    samples: int = 0
    rounds: int = 0
    tokens: int = 0
    squares: float = 0.0
    verified_J: Floats = field(default_factory=lambda: np.zeros(MAX_DRAFT_TOKENS))
    accepted_J: Floats = field(default_factory=lambda: np.zeros(MAX_DRAFT_TOKENS))


class Tally:
    """Written in the engine's thread; `uses` may be called in any."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], _Sums] = {}

    def round(self, run: Run, kind: str, task_class: str, tokens: int) -> None:
        """A round of a sequence has emitted so many tokens."""
        run.rounds += 1
        run.tokens += tokens
        if run.rounds - run.counted[0] >= _SAMPLE_ROUNDS:
            self.count(run, kind, task_class)

    def count(self, run: Run, kind: str, task_class: str) -> None:
        """Takes in what is not counted of a run: it ends, or has become long."""
        rounds, tokens = run.rounds - run.counted[0], run.tokens - run.counted[1]
        if not rounds or not kind:
            return
        run.counted = run.rounds, run.tokens
        sums = self._of(kind, task_class)
        sums.samples += 1
        sums.rounds += rounds
        sums.tokens += tokens
        sums.squares += tokens * tokens / rounds

    def drafts(self, kind: str, task_class: str, kept_N: Counts, accepted_N: Counts) -> None:
        """Verified drafts: of `kept` tokens, at least one, the first `accepted` stood."""
        sums = self._of(kind, task_class)
        sums.verified_J = sums.verified_J + reached(np.minimum(kept_N, accepted_N + 1))
        sums.accepted_J = sums.accepted_J + reached(accepted_N)

    def uses(self) -> tuple[Use, ...]:
        """Totals since start."""
        return tuple(
            Use(
                *key,
                sums.samples,
                sums.rounds,
                sums.tokens,
                sums.squares,
                _without_tail(sums.verified_J),
                _without_tail(sums.accepted_J),
            )
            for key, sums in list(self._sums.items())
        )

    def _of(self, kind: str, task_class: str) -> _Sums:
        return self._sums.setdefault((kind, task_class), _Sums())


def _without_tail(values_J: Floats) -> tuple[float, ...]:
    """Positions that were never reached need not travel."""
    return tuple(np.trim_zeros(values_J, "b").tolist())
