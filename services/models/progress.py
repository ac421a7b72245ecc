"""How far the fetching of a model has come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Stage = Literal["wait", "download", "unpack", "convert"]


@dataclass(frozen=True, slots=True)
class Progress:
    """`done` of `total` bytes (tensors when converting) of a stage; a total of 0 says that the stage cannot tell."""

    stage: Stage
    done: int
    total: int


OnProgress = Callable[[Progress], None]


def silent(_: Progress) -> None:
    """For callers that show nothing."""
