"""What targets tell of their drafters, and what the fleet is told of them in return."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from services.requests.speculation import MAX_DRAFT_TOKENS

MAX_USES = 64  # kinds times classes that one replica may tell of
MAX_NAME = 32  # characters of a kind or class


@dataclass(frozen=True, slots=True)
class Use:
    """Decode rounds of a class of requests with a drafter kind, those without a draft included.

    In a report: since the replica started. A sample is a request, or 32 rounds of a long one.
    """

    kind: str
    task_class: str  # chat, code or maths; empty where nobody knows
    samples: float
    rounds: float
    tokens: float  # emitted in those rounds
    squares: float  # of a sample's tokens, over its rounds
    verified: tuple[float, ...]  # by draft position: rounds in which it was decided whether that draft stands
    accepted: tuple[float, ...]  # and in which it stood

    def __post_init__(self) -> None:
        _check_names(self)
        _check_amounts(self)
        for name in ("verified", "accepted"):
            values = getattr(self, name)
            if len(values) > MAX_DRAFT_TOKENS or not all(0 <= value < math.inf for value in values):
                raise ValueError(f"{name}: it must have at most {MAX_DRAFT_TOKENS} values, each at least 0")


@dataclass(frozen=True, slots=True)
class RoundCost:
    """What a round with a drafter kind takes a target now, its share of drafting and waiting included."""

    kind: str
    plain_steps: float  # so many times the step that would be without any drafts

    def __post_init__(self) -> None:
        _check_names(self)
        _check_amounts(self)


@dataclass(frozen=True, slots=True)
class Guidance:
    """What the fleet knows of a drafter kind for a class of requests, and allows."""

    kind: str
    task_class: str
    samples: float  # recent ones of all targets, as in `Use`
    rounds: float
    tokens: float
    squares: float
    acceptance: tuple[float, ...]  # by position, given those before; empty where nothing is known
    max_draft: int  # tokens that are worth asking for
    is_admitted: bool  # False: drafters are short, and others gain more from them

    def __post_init__(self) -> None:
        _check_names(self)
        _check_amounts(self)
        if len(self.acceptance) > MAX_DRAFT_TOKENS or not all(0 <= value <= 1 for value in self.acceptance):
            raise ValueError(f"acceptance: it must have at most {MAX_DRAFT_TOKENS} values from 0 to 1")


@dataclass(frozen=True, slots=True)
class KindBudget:
    """What the fleet says of a drafter kind as a whole."""

    kind: str
    replicas: int  # alive
    wanted: int  # replicas that the work offered calls for
    busy: float  # smoothed share of the time in which its replicas compute
    price_s: float  # seconds that a target must value each draft token at that it asks for
    plain_steps: float  # mean cost of a round, as in `RoundCost`; 0 where nobody has told

    def __post_init__(self) -> None:
        _check_names(self)
        _check_amounts(self)


def _check_names(message: object) -> None:
    for name in ("kind", "task_class"):
        value = getattr(message, name, "")
        if len(value) > MAX_NAME:
            raise ValueError(f"{name}: {len(value)} characters are too many; at most {MAX_NAME} are allowed")


def _check_amounts(message: object) -> None:
    """Numbers are amounts here: finite, and never below 0."""
    for field in fields(message):  # type: ignore[arg-type]
        value = getattr(message, field.name)
        if isinstance(value, (int, float)) and not 0 <= value < math.inf:
            raise ValueError(f"{field.name}: {value} is out of range; it must be at least 0 and finite")
