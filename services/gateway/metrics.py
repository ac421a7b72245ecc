"""What a gateway replica counts of the answers that pass through it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from protos import generation_pb2 as pb
from services.gateway.errors import ErrorKind
from services.metrics.defined import gateway as defined
from services.metrics.readings import Histogram
from services.requests.task import Task, name_of

_REASONS = {
    pb.FINISH_REASON_STOP: "stop",
    pb.FINISH_REASON_LENGTH: "length",
    pb.FINISH_REASON_ABORT: "abort",
}


class GatewayMetrics:
    """Since start. Belongs to one event loop."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()  # by outcome
        self.errors: Counter[tuple[str, str]] = Counter()  # by door and kind
        self.choices: Counter[tuple[str, str, str]] = Counter()  # by finish reason, drafter and class
        self.first_token = Histogram(defined.FIRST_TOKEN)
        self.inter_token = Histogram(defined.INTER_TOKEN)
        self.seconds = Histogram(defined.REQUEST_SECONDS)

    def failed(self, door: str, kind: ErrorKind) -> None:
        """A client was told of an error."""
        self.errors[door, kind.name.lower()] += 1

    @contextmanager
    def watching(self, task: Task, num_choices: int, arrived: float) -> Iterator[AnswerWatch]:
        """Counts one prompt's generation and how it ends. `arrived`: seconds of the monotonic clock."""
        watch = AnswerWatch(self, name_of(task), num_choices, arrived)
        outcome = "failed"
        try:
            yield watch
            outcome = "finished"
        except (asyncio.CancelledError, GeneratorExit):
            outcome = "finished" if watch.is_finished else "cancelled"
            raise
        finally:
            self.requests[outcome] += 1
            if outcome == "finished":
                self.seconds.observe(time.monotonic() - arrived, watch.name)


class AnswerWatch:
    """Sees every chunk of one prompt's choices."""

    def __init__(self, metrics: GatewayMetrics, name: str, num_choices: int, arrived: float) -> None:
        self.name = name
        self._num_open = num_choices
        self._metrics = metrics
        self._arrived = arrived
        self._stamps: dict[int, float] = {}  # of the newest token, by choice

    @property
    def is_finished(self) -> bool:
        """Whether every choice has had its last chunk, so that closing the stream loses nothing."""
        return self._num_open <= 0

    def see(self, chunk: pb.GenerateChunk) -> None:
        if chunk.token_times:
            if not self._stamps:
                self._metrics.first_token.observe(time.monotonic() - self._arrived, self.name)
            self._gaps(chunk)
        if chunk.finish_reason:
            self._num_open -= 1
            drafter = chunk.speculation.drafter.partition("+")[0]
            self._metrics.choices[_REASONS.get(chunk.finish_reason, ""), drafter or "none", self.name] += 1

    def _gaps(self, chunk: pb.GenerateChunk) -> None:
        """Tokens of one step come at one time, so each gets its share of the gap before it."""
        count, newest = len(chunk.token_times), chunk.token_times[-1]
        before = self._stamps.get(chunk.choice)
        self._stamps[chunk.choice] = newest
        if before is not None:
            self._metrics.inter_token.observe(max(newest - before, 0.0) / count, self.name, times=count)
        elif count > 1:
            share = max(newest - chunk.token_times[0], 0.0) / (count - 1)
            self._metrics.inter_token.observe(share, self.name, times=count - 1)
