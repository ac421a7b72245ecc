"""Desks that make drafting go well or wrong on purpose, to test that the text does not care."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence

import torch

from services.dcut.costs.drafts import DraftWait
from services.requests.speculation import MAX_DRAFT_TOKENS
from services.target.drafting.interface import DraftingContext, DraftSource, FeatureRequest, Guess, Lease


class SilentDesk:
    """Never drafts."""

    def __init__(self) -> None:
        self._awake = threading.Event()
        self.opened: set[int] = set()
        self.closed: set[int] = set()

    def open(self, sequence: int, context: DraftingContext, tokens: Sequence[int]) -> None:
        self.opened.add(sequence)

    def attach(self, sequence: int, lease: Lease) -> None: ...

    def features_wanted(self, sequence: int) -> FeatureRequest | None:
        return None

    def features_of_interest(self) -> tuple[FeatureRequest, ...]:
        return ()

    def features_end(self, sequence: int) -> int:
        return 0

    def add_features(self, sequence: int, first_position: int, features_RTD: torch.Tensor) -> None: ...

    def connected_kinds(self) -> set[str]:
        return set()

    def prefer(self, sequence: int, kind: str) -> None:
        return None

    def source_of(self, sequence: int) -> DraftSource | None:
        return None

    def ask(self, sequences: Sequence[tuple[int, int]]) -> None: ...

    def take_waits(self) -> Sequence[DraftWait]:
        return ()

    def is_pending(self, sequence: int) -> bool:
        return False

    def take(self, sequence: int) -> Guess | None:
        return None

    def drafter_of(self, sequence: int) -> str:
        return "none"

    def close(self, sequence: int) -> None:
        self.closed.add(sequence)

    def wait(self, timeout_s: float) -> None:
        self._awake.wait(timeout_s)
        self._awake.clear()

    def wake(self) -> None:
        self._awake.set()


class ErraticDesk(SilentDesk):
    """Drafts from known answers, but spoils, shortens and loses drafts at random.

    `answers` maps a prompt to the text that is expected after it; other prompts get random drafts out of `likely`.
    """

    def __init__(
        self,
        answers: dict[tuple[int, ...], Sequence[int]],
        vocabulary: int,
        seed: int,
        likely: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self._answers = answers
        self._vocabulary = vocabulary
        self._likely = likely or range(vocabulary)
        self._random = random.Random(seed)
        self._tokens: dict[int, Sequence[int]] = {}
        self._prompts: dict[int, tuple[int, ...]] = {}
        self._guesses: dict[int, Guess] = {}
        self.num_given = 0

    def open(self, sequence: int, context: DraftingContext, tokens: Sequence[int]) -> None:
        super().open(sequence, context, tokens)
        self._tokens[sequence] = tokens
        self._prompts[sequence] = tuple(tokens)

    def source_of(self, sequence: int) -> DraftSource | None:
        return DraftSource("erratic", False, MAX_DRAFT_TOKENS)

    def ask(self, sequences: Sequence[tuple[int, int]]) -> None:
        for sequence, limit in sequences:
            fate = self._random.random()
            if fate < 0.2 or limit == 0:
                continue  # lost
            prompt = self._prompts[sequence]
            start = len(self._tokens[sequence]) - len(prompt)
            known = list(self._answers.get(prompt, ()))[start : start + limit]
            draft = known or [self._random.choice(self._likely) for _ in range(limit)]
            if fate < 0.5:
                draft[self._random.randrange(len(draft))] = self._random.randrange(self._vocabulary)
            draft = draft[: self._random.randint(1, len(draft))]
            self._guesses[sequence] = Guess(tuple(draft), tuple(self._random.random() for _ in draft))

    def take(self, sequence: int) -> Guess | None:
        guess = self._guesses.pop(sequence, None)
        self.num_given += guess is not None
        return guess

    def drafter_of(self, sequence: int) -> str:
        return "erratic"
