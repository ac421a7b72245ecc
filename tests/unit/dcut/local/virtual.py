"""A target and its drafters in virtual time: what policies are worth, without a machine's noise."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from services.dcut.costs.drafts import DraftWait
from services.dcut.costs.steps import StepCosts
from services.dcut.local.dcut import LocalDcut
from services.dcut.local.messages import Candidate, Offer, StepLoad, Verified

Quality = Callable[[int], float]  # of the sequence of that number: mean probability that a draft token stands
Wait = Callable[[int, int], float]  # seconds from the number of sequences asked and the longest draft

CONTEXT = 300.0
ANSWER = 150


@dataclass(slots=True)
class _Answer:
    sequence: int
    quality: float
    left: int = ANSWER


@dataclass(slots=True)
class VirtualTarget:
    """Rounds in step, as the engine has them: all wait for the drafts, then one step verifies what is kept.

    A draft token stands with the probability that its drafter says, which varies around the sequence's quality.
    """

    dcut: LocalDcut
    table: StepCosts  # the truth
    wait: Wait
    quality: Quality
    batch: int
    limit: int = 7
    seed: int = 1
    seconds: float = 0.0
    tokens: int = 0
    _random: random.Random = field(init=False)
    _answers: list[_Answer] = field(default_factory=list)
    _opened: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        for _ in range(self.batch):
            self._answers.append(self._new())

    def run(self, tokens: int) -> float:
        """Tokens a second over the next so many."""
        end, started, had = self.tokens + tokens, self.seconds, self.tokens
        while self.tokens < end:
            self._round()
        return (self.tokens - had) / (self.seconds - started)

    def _round(self) -> None:
        load = StepLoad(self.batch, CONTEXT, 0, 1 << 16)
        by_id = {answer.sequence: answer for answer in self._answers}
        candidates = [Candidate(a.sequence, "mtp", False, min(self.limit, a.left - 1)) for a in self._answers]
        asks = dict(self.dcut.ask(candidates, load))
        if asks:
            longest = max(asks.values())
            waited = self.wait(len(asks), longest)
            self.seconds += waited
            self.dcut.observe_wait(DraftWait("mtp", len(asks), longest, waited, waited))
            self.dcut.observe_pauses(waited, 0.0)
        said = {sequence: self._confidences(by_id[sequence].quality, count) for sequence, count in asks.items()}
        kept = self.dcut.keep([Offer(number, said.get(number, ())) for number in by_id], load)
        rows = self.batch + sum(kept)
        took = float(self.table.seconds(rows, CONTEXT))
        self.seconds += took
        self.dcut.observe_step(rows, CONTEXT, 0, took)
        verified = []
        for answer, count in zip(self._answers, kept, strict=True):
            words = said.get(answer.sequence, ())[:count]
            accepted = next((at for at, word in enumerate(words) if self._random.random() >= word), count)
            self.tokens += accepted + 1
            answer.left -= accepted + 1
            verified.append(Verified(answer.sequence, count, accepted))
        self.dcut.observe_verified(verified)
        for at, answer in enumerate(self._answers):
            if answer.left <= 0:
                self.dcut.close(answer.sequence)
                self._answers[at] = self._new()

    def _confidences(self, quality: float, count: int) -> tuple[float, ...]:
        draw = self._random.betavariate
        return tuple(min(max(draw(3 * quality, 3 * (1 - quality)), 0.001), 0.999) for _ in range(count))

    def _new(self) -> _Answer:
        self._opened += 1
        self.dcut.open(self._opened, "", is_greedy=True)
        return _Answer(self._opened, self.quality(self._opened))
