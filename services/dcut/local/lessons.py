"""What verified drafts teach: how often drafts stand, and what a drafter's word is worth. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from services.dcut.local.acceptance import Acceptance
from services.dcut.local.calibration import Calibration
from services.dcut.local.tally import Tally

_ROUNDS = 8  # whose verdicts are learned together
_VERDICTS = 128


@dataclass(frozen=True, slots=True)
class Verdict:
    """A draft that was verified."""

    source: tuple[str, str, bool]  # kind, class, greedy
    stated: tuple[float, ...]  # confidences of what was offered
    kept: int
    accepted: int


class Lessons:
    """Verdicts are learned a few rounds at a time: numpy then costs little."""

    def __init__(self) -> None:
        self.acceptance = Acceptance()
        self.calibration = Calibration()
        self.tally = Tally()
        self._verdicts: list[Verdict] = []
        self._num_rounds = 0

    def add(self, verdicts: list[Verdict]) -> bool:
        """Those of one round; whether this was a round in which they were learned."""
        self._verdicts += verdicts
        self._num_rounds += 1
        if len(self._verdicts) < _VERDICTS and self._num_rounds < _ROUNDS:
            return False
        by_source: dict[tuple[str, str, bool], list[Verdict]] = {}
        for verdict in self._verdicts:
            by_source.setdefault(verdict.source, []).append(verdict)
        self._verdicts, self._num_rounds = [], 0
        for source, theirs in by_source.items():
            self._learn(source, theirs)
        return True

    def _learn(self, source: tuple[str, str, bool], verdicts: list[Verdict]) -> None:
        kind, task_class, is_greedy = source
        kept_N = np.array([verdict.kept for verdict in verdicts])
        accepted_N = np.array([verdict.accepted for verdict in verdicts])
        self.acceptance.observe(kind, task_class, kept_N, accepted_N)
        self.tally.drafts(kind, task_class, kept_N, accepted_N)
        known_N = np.minimum(kept_N, accepted_N + 1)  # past the first that fell, nothing was decided
        stated = np.array(
            [word for verdict, known in zip(verdicts, known_N, strict=True) for word in verdict.stated[:known]]
        )
        positions = np.arange(len(stated)) - np.repeat(np.cumsum(known_N) - known_N, known_N)
        accepted = (positions < np.repeat(accepted_N, known_N)).astype(np.float64)
        self.calibration.observe((kind, is_greedy), stated, positions, accepted)
