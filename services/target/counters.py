"""What the engine counts: plain numbers, written in its thread between two steps and read from any."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from services.metrics.defined.target import DRAFT_WAIT
from services.metrics.readings import Histogram
from services.requests.task import name_of

if TYPE_CHECKING:
    from services.target.stepper import Outcome

NO_DRAFTER = "none"


class EngineCounters:
    """Since start. By drafter kind, class of request and position where a tuple is the key."""

    def __init__(self) -> None:
        self.rounds: Counter[str] = Counter()
        self.round_tokens: Counter[str] = Counter()
        self.drafts: Counter[tuple[str, str]] = Counter()
        self.draft_tokens: Counter[tuple[str, str]] = Counter()
        self.accepted_tokens: Counter[tuple[str, str]] = Counter()
        # By kind: drafts of each verified length, and of each accepted one.
        self.verified_lengths: Counter[tuple[str, int]] = Counter()
        self.accepted_lengths: Counter[tuple[str, int]] = Counter()
        self.generated_tokens = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.steps = 0
        self.failed_steps = 0
        self.prompt_rows = 0
        self.decode_rows = 0
        self.seconds: defaultdict[str, float] = defaultdict(float)  # by part of the loop
        self.waits = Histogram(DRAFT_WAIT)
        self.busy_s: defaultdict[str, float] = defaultdict(float)  # by drafter kind

    def count(self, outcome: Outcome, kind: str) -> None:
        """What a step gave one sequence; `kind` is whose draft it was."""
        sequence, num_tokens = outcome.sequence, len(outcome.tokens)
        self.generated_tokens += num_tokens
        if not outcome.is_round:
            if sequence.num_output == num_tokens:
                self.prompt_tokens += sequence.num_prompt
                self.cached_tokens += sequence.num_cached
            return
        name = name_of(sequence.request.task)
        self.rounds[name] += 1
        self.round_tokens[name] += num_tokens
        if outcome.num_verified:
            accepted = min(outcome.num_accepted, num_tokens)  # as the answer tells it
            group = kind, name
            self.drafts[group] += 1
            self.draft_tokens[group] += outcome.num_verified
            self.accepted_tokens[group] += accepted
            self.verified_lengths[kind, outcome.num_verified] += 1
            self.accepted_lengths[kind, accepted] += 1

    @property
    def known_s(self) -> float:
        """Seconds of all parts together."""
        return sum(self.seconds.values())

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] += time.perf_counter() - started
