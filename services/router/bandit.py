"""Which drafter kind to try for a class of requests: the fastest by what was measured, now and then another. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from services.requests.task import TaskClass
from services.router.config import BanditConfig


@dataclass(frozen=True, slots=True)
class Arm:
    """What a class of requests has had from a kind of late, all targets together."""

    samples: float
    rounds: float
    tokens: float
    squares: float  # of a sample's tokens, over its rounds


_UNSEEN = Arm(0.0, 0.0, 0.0, 0.0)


class KindBandit:
    """Optimistic choice with forgetting (discounted UCB), held to a budget of explorations.

    Speed of a kind = tokens a round / cost of a round. Both come from the fleet: the tokens as a
    fading record, the cost in plain steps as it is at the present load. A kind without a record is
    taken for its prior. With gaps of at most g between the speeds of kinds, n requests of a class
    lose no more than `explored * n * g`, beside what they lose until the record tells kinds apart.
    """

    def __init__(self, config: BanditConfig) -> None:
        self._config = config
        self._allowances: dict[TaskClass, float] = {}  # explorations that may be made now

    def ranked(self, task: TaskClass, costs: Mapping[str, float], arms: Mapping[str, Arm]) -> tuple[str, ...]:
        """The kinds of `costs`, fastest first; as fast ones in their order there."""
        return tuple(sorted(costs, key=lambda kind: -self._length(task, kind, arms) / costs[kind]))

    def order(self, task: TaskClass, costs: Mapping[str, float], arms: Mapping[str, Arm]) -> tuple[str, ...]:
        """Like `ranked`, but one that may be faster leads when it is time to explore.

        `costs` has the kinds with a healthy replica. Call once for each request that leaves the choice to us.
        """
        config = self._config
        allowance = min(self._allowances.get(task, 0.0) + config.explored, config.savings)
        self._allowances[task] = allowance
        ranked = self.ranked(task, costs, arms)
        if len(ranked) < 2 or allowance < 1:
            return ranked
        best = self._length(task, ranked[0], arms) / costs[ranked[0]]
        hopes = {kind: self._hope(task, kind, arms) / costs[kind] for kind in ranked[1:]}
        boldest = max(hopes, key=lambda kind: hopes[kind])
        if hopes[boldest] <= best:
            return ranked
        self._allowances[task] -= 1
        return (boldest, *(kind for kind in ranked if kind != boldest))

    def _length(self, task: TaskClass, kind: str, arms: Mapping[str, Arm]) -> float:
        """Tokens a round: the measured mean, drawn to the prior while samples are few."""
        prior, arm = self._config.priors.get(task, {}).get(kind, 1.0), arms.get(kind, _UNSEEN)  # type: ignore[call-overload]
        if not arm.rounds:
            return float(prior)
        weight = min(arm.samples / self._config.trusted, 1.0)
        return float(weight * arm.tokens / arm.rounds + (1 - weight) * prior)

    def _hope(self, task: TaskClass, kind: str, arms: Mapping[str, Arm]) -> float:
        """Upper confidence bound of tokens a round; of a kind that was hardly seen, without bound."""
        arm = arms.get(kind, _UNSEEN)
        samples = arm.rounds / self._config.rounds
        if samples < 1:
            return math.inf
        mean = arm.tokens / arm.rounds
        variance = max(arm.squares / arm.rounds - mean * mean, 0.0) + 1.0  # one request says nothing of the spread
        seen = sum(other.samples for other in arms.values())
        return self._length(task, kind, arms) + self._config.width * math.sqrt(variance * math.log1p(seen) / samples)
