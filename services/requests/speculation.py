"""What a client may ask of speculation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast, get_args

DrafterChoice = Literal["auto", "mtp", "dfly", "lookup", "none"]
MAX_DRAFT_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Speculation:
    """Which drafter, and at most how many draft tokens a round (0: none are drafted).

    `force`: ask for as many in every round and verify all that come, whether it pays or not. For measurements.
    Raises ValueError naming the field, the value and the allowed values.
    """

    drafter: DrafterChoice = "auto"
    max_draft_tokens: int | None = None
    trace: bool = False
    force: bool = False

    def __post_init__(self) -> None:
        if self.drafter not in get_args(DrafterChoice):
            allowed = ", ".join(get_args(DrafterChoice))
            raise ValueError(f"drafter: {self.drafter!r} is not known; it must be one of {allowed}")
        limit = self.max_draft_tokens
        if limit is not None and not 0 <= limit <= MAX_DRAFT_TOKENS:
            raise ValueError(
                f"max_draft_tokens: {limit} is out of range; it must be at least 0 and at most {MAX_DRAFT_TOKENS}"
            )

    @property
    def is_off(self) -> bool:
        return self.drafter == "none" or self.max_draft_tokens == 0


def as_drafter_choice(name: str) -> DrafterChoice:
    """Narrows a string that `Speculation` will check."""
    return cast(DrafterChoice, name)
