"""The requests of a simulation, and what drafts of them are worth. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from services.requests.task import TaskClass
from services.simulation.config import DrafterConfig, WorkConfig


@dataclass(slots=True, eq=False)
class Request:
    """One answer, from its arrival to its last token."""

    number: int
    task: TaskClass
    prompt: int
    answer: int
    arrived_s: float
    qualities: dict[str, float]  # by kind: mean probability that a draft token stands
    emitted: int = 0
    uncomputed: int = 0  # prompt tokens, and after a target's death emitted ones, without KV
    rounds: int = 0
    first_s: float = 0.0
    ended_s: float = 0.0

    @property
    def context(self) -> int:
        return self.prompt + self.emitted


class Workload:
    """Draws requests and drafts; the same seed gives the same ones, whatever the policy does with them."""

    def __init__(self, config: WorkConfig, drafters: Sequence[DrafterConfig], seed: int) -> None:
        self._config = config
        self._drafters = drafters
        self._requests = random.Random(seed)
        self._gaps = random.Random(seed + 1)
        self._drafts = random.Random(seed + 2)
        self._number = 0

    def gap_s(self, now: float) -> float:
        """To the next arrival."""
        config = self._config
        rate = config.rate * (1 + config.swing * math.sin(2 * math.pi * now / config.period_s))
        return self._gaps.gammavariate(config.burstiness, 1 / (config.burstiness * rate))

    def request(self, now: float) -> Request:
        config, draw = self._config, self._requests
        self._number += 1
        classes = list(config.mix)
        (task,) = draw.choices(classes, [config.mix[name] for name in classes])
        # One luck for all kinds: a text that is hard for one drafter is hard for the others.
        luck = draw.random()
        prompt = max(round(config.prompt_tokens * math.exp(draw.gauss(0, config.spread))), 1)
        answer = max(round(config.answer_tokens * math.exp(draw.gauss(0, config.spread))), 1)
        qualities = {str(d.kind): _quality(d.acceptance.get(task, 0.0), luck, config.variety) for d in self._drafters}
        return Request(self._number, task, prompt, answer, now, qualities, uncomputed=prompt)

    def draft(self, quality: float, length: int) -> tuple[float, ...]:
        """Confidences of a draft, each of which is true."""
        draw = self._drafts.betavariate
        return tuple(min(max(draw(2 * quality + 1e-3, 2 * (1 - quality) + 1e-3), 1e-3), 0.999) for _ in range(length))

    def accepted(self, confidences: Sequence[float]) -> int:
        """How many of the first stand."""
        draw = self._drafts.random
        return next((at for at, word in enumerate(confidences) if draw() >= word), len(confidences))


def _quality(mean: float, luck: float, variety: float) -> float:
    """The class's mean, spread over its requests: more even the larger `variety` is."""
    centred = (luck - 0.5) / (1 + variety)
    return min(max(mean + centred * 4 * mean * (1 - mean), 0.0), 0.98)


@dataclass(slots=True)
class Finished:
    """What a simulation is measured by."""

    requests: list[Request] = field(default_factory=list)

    def since(self, begun_s: float) -> list[Request]:
        return [request for request in self.requests if request.ended_s >= begun_s]
