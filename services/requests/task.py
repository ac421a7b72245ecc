"""What kind of work a request asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

TaskClass = Literal["chat", "code", "maths"]
CLASSES: tuple[TaskClass, ...] = get_args(TaskClass)


@dataclass(frozen=True, slots=True)
class Task:
    """A request's class. It may steer speed, never text.

    Raises ValueError naming the field, the value and the allowed values.
    """

    kind: TaskClass
    confidence: float  # probability of the class, in [0, 1]

    def __post_init__(self) -> None:
        if self.kind not in CLASSES:
            raise ValueError(f"kind: {self.kind!r} is not known; it must be one of {', '.join(CLASSES)}")
        if not 0.0 <= self.confidence <= 1.0:  # true for NaN
            raise ValueError(f"confidence: {self.confidence} is out of range; it must be at least 0 and at most 1")


def name_of(task: Task) -> str:
    """The class, or `unknown` where nobody is sure of it at all."""
    return task.kind if task.confidence else "unknown"


# Of a request about which nothing is known.
UNKNOWN_TASK = Task("chat", 0.0)
