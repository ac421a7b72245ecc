"""Which drafter kind to try for a class of requests: the fastest by what was measured, now and then another. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from services.requests.task import TaskClass


@dataclass(frozen=True, slots=True)
class BanditConfig:
    """`explored` bounds the regret: no larger share of a class's requests goes to a kind that looks slower."""

    explored: float = 0.05
    memory: float = 200.0  # requests of a class after which an old one counts for 1/e
    trusted: float = 20.0  # requests after which measurements alone count; before, the prior too
    rounds: float = 16.0  # rounds whose emitted tokens tell as much as one independent sample
    width: float = 2.0  # of the confidence bound, in standard errors
    savings: float = 3.0  # explorations that a quiet class may save up


@dataclass(slots=True)
class _Arm:
    """Decayed sums over the requests of a kind and class."""

    requests: float = 0.0
    rounds: float = 0.0
    tokens: float = 0.0
    squares: float = 0.0  # of a request's tokens per round, weighted by its rounds

    def decay(self, factor: float) -> None:
        self.requests *= factor
        self.rounds *= factor
        self.tokens *= factor
        self.squares *= factor


@dataclass(slots=True)
class _Class:
    arms: dict[str, _Arm] = field(default_factory=dict)
    allowance: float = 0.0  # explorations that may be made now


class KindBandit:
    """Optimistic choice with forgetting (discounted UCB), held to a budget of explorations.

    Speed of a kind = tokens a round / cost of a round, the cost in plain steps at the
    present load and given by the caller: it changes faster than acceptance, which alone
    is learnt. A kind without measurements is taken for `prior` tokens a round.
    With gaps of at most g between the speeds of kinds, n requests of a class lose no more than
    `explored * n * g`, beside what they lose until the measurements tell kinds apart.
    """

    def __init__(self, config: BanditConfig, priors: Mapping[TaskClass, Mapping[str, float]]) -> None:
        self._config = config
        self._priors = priors
        self._classes: dict[TaskClass, _Class] = {}

    def order(self, task: TaskClass, costs: Mapping[str, float]) -> tuple[str, ...]:
        """The kinds of `costs`, those to try first in front; one that may be faster leads when it is time to explore.

        `costs` has the kinds with a healthy replica. Call once for each request that leaves the choice to us.
        """
        state = self._classes.setdefault(task, _Class())
        state.allowance = min(state.allowance + self._config.explored, self._config.savings)
        ranked = sorted(costs, key=lambda kind: -self._length(task, kind) / costs[kind])  # stable
        if len(ranked) < 2 or state.allowance < 1:
            return tuple(ranked)
        best = self._length(task, ranked[0]) / costs[ranked[0]]
        hopes = {kind: self._hope(task, kind) / costs[kind] for kind in ranked[1:]}
        boldest = max(hopes, key=lambda kind: hopes[kind])
        if hopes[boldest] <= best:
            return tuple(ranked)
        state.allowance -= 1
        return (boldest, *(kind for kind in ranked if kind != boldest))

    def observe(self, task: TaskClass, kind: str, rounds: int, tokens: int) -> None:
        """A request has ended: so many decode rounds with this kind, and tokens that they emitted."""
        if rounds < 1:
            return
        state = self._classes.setdefault(task, _Class())
        factor = math.exp(-1 / self._config.memory)
        for arm in state.arms.values():
            arm.decay(factor)
        arm = state.arms.setdefault(kind, _Arm())
        arm.requests += 1
        arm.rounds += rounds
        arm.tokens += tokens
        arm.squares += tokens * tokens / rounds

    def lengths(self, task: TaskClass, kinds: Sequence[str]) -> dict[str, float]:
        """Tokens a round as expected now, bonus included: for `status`."""
        return {kind: self._length(task, kind) for kind in kinds}

    def _length(self, task: TaskClass, kind: str) -> float:
        """Measured mean, drawn to the prior while measurements are few."""
        prior, arm = self._prior(task, kind), self._arm(task, kind)
        if not arm.rounds:
            return prior
        weight = min(arm.requests / self._config.trusted, 1.0)
        return weight * arm.tokens / arm.rounds + (1 - weight) * prior

    def _hope(self, task: TaskClass, kind: str) -> float:
        """Upper confidence bound of tokens a round; of a kind that was hardly seen, without bound."""
        arm = self._arm(task, kind)
        samples = arm.rounds / self._config.rounds
        if samples < 1:
            return math.inf
        mean = arm.tokens / arm.rounds
        variance = max(arm.squares / arm.rounds - mean * mean, 0.0) + 1.0  # one request says nothing of the spread
        seen = sum(arm.requests for arm in self._classes[task].arms.values())
        return self._length(task, kind) + self._config.width * math.sqrt(variance * math.log1p(seen) / samples)

    def _arm(self, task: TaskClass, kind: str) -> _Arm:
        state = self._classes.get(task)
        return (state.arms.get(kind) if state else None) or _Arm()

    def _prior(self, task: TaskClass, kind: str) -> float:
        return self._priors.get(task, {}).get(kind, 1.0)
