"""Drafter replicas in virtual time."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import simpy

from services.simulation.config import DraftCostConfig, DrafterConfig

_MAX_BATCH = 64
_numbers = itertools.count()


@dataclass(slots=True, eq=False)
class Job:
    """One target's asks of a round."""

    sequences: int
    longest: int
    reply: simpy.Event
    busy_s: float = 0.0  # that its batch took


class DrafterReplica:
    """Serves what waits as one batch, as the real one does."""

    def __init__(self, env: simpy.Environment, config: DrafterConfig) -> None:
        self.name = f"{config.kind}-{next(_numbers)}"
        self.kind = config.kind
        self.sessions = 0
        self.is_alive = True
        self.busy_s = 0.0
        self._env = env
        self._cost = config.cost
        self._jobs: deque[Job] = deque()
        self._wake = env.event()
        self._told = (env.now, 0.0)
        env.process(self._run())

    def ask(self, sequences: int, longest: int) -> Job:
        job = Job(sequences, longest, self._env.event())
        if self.is_alive:  # a dead one never answers
            self._jobs.append(job)
            if not self._wake.triggered:
                self._wake.succeed()
        return job

    def die(self) -> None:
        self.is_alive = False
        self._jobs.clear()

    def take_busy(self) -> float:
        """Share of the time since the last call in which it computed."""
        passed, worked = self._env.now - self._told[0], self.busy_s - self._told[1]
        self._told = (self._env.now, self.busy_s)
        return worked / passed if passed > 0 else 0.0

    def _run(self) -> Generator[simpy.Event, Any, None]:
        while True:
            if not self._jobs:
                self._wake = self._env.event()
                yield self._wake
            batch = [self._jobs.popleft()]
            while self._jobs and sum(job.sequences for job in batch) + self._jobs[0].sequences <= _MAX_BATCH:
                batch.append(self._jobs.popleft())
            took_s = round_s(self._cost, sum(job.sequences for job in batch), max(job.longest for job in batch))
            yield self._env.timeout(took_s)
            self.busy_s += took_s
            if not self.is_alive:
                return
            for job in batch:
                job.busy_s = took_s
                job.reply.succeed()


def round_s(cost: DraftCostConfig, sequences: int, longest: int) -> float:
    """Seconds of a round of drafts."""
    return (cost.a + cost.b * longest + cost.c * sequences + cost.d * longest * sequences) / 1e3
