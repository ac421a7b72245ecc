"""Whether a request should go on with another drafter kind. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

_FIRST_ROUNDS = 24  # before which nothing is clear
_CLASS_WEIGHT = 12.0  # rounds that the class's mean is worth against the request's own
_MARGIN = 1.1  # by which another kind must look faster: a switch costs a catch-up
_LIKENESS = 0.5  # a text that is hard for one drafter is often hard for another: exponent of what is carried over


@dataclass(frozen=True, slots=True)
class Promise:
    """What a kind gives a class of requests, by what all targets have seen."""

    tokens: float  # a round, bonus token included
    plain_steps: float  # that a round costs


def better_kind(
    current: str, rounds: int, tokens: int, promises: Mapping[str, Promise], connected: Collection[str]
) -> str | None:
    """The kind to go on with, where another than `current` promises more; None to stay.

    rounds, tokens   of this request with the current kind
    promises         by kind, for the request's class; a kind without one is not considered
    connected        kinds that could be used now
    """
    here = promises.get(current)
    if here is None or rounds < _FIRST_ROUNDS:
        return None
    own = (tokens + _CLASS_WEIGHT * here.tokens) / (rounds + _CLASS_WEIGHT)
    likeness = (max(own - 1, 0.0) / max(here.tokens - 1, 1e-3)) ** _LIKENESS
    best, best_speed = None, _MARGIN * own / here.plain_steps
    for kind, promise in promises.items():
        speed = (1 + (promise.tokens - 1) * likeness) / promise.plain_steps
        if kind != current and kind in connected and speed > best_speed:
            best, best_speed = kind, speed
    return best
