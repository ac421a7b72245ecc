"""What the engine tells about one choice of a request after a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from services.target.sampling.logprobs import TokenLogprobs

# refused: what the request asks for cannot be done; error: a fault of ours.
FinishReason = Literal["stop", "length", "abort", "refused", "error"]
Origin = Literal["plain", "accepted", "bonus"]


@dataclass(frozen=True, slots=True)
class TokenTrace:
    """Where a token came from, the draft tokens that were thrown away at its position, and who had drafted."""

    origin: Origin
    rejected: tuple[int, ...] = ()
    drafter: str = ""


@dataclass(frozen=True, slots=True)
class Statistics:
    """accepted_length is tokens emitted in decode steps over their number; the prefill's token is in neither."""

    drafter: str
    num_rounds: int
    num_round_tokens: int
    num_drafts: int
    num_draft_tokens: int
    num_accepted_tokens: int

    @property
    def accepted_length(self) -> float:
        return self.num_round_tokens / self.num_rounds if self.num_rounds else 0.0


@dataclass(frozen=True, slots=True)
class Finish:
    reason: FinishReason
    stop: str  # the stop string or token id that ended it
    prompt_tokens: int
    cached_prompt_tokens: int
    completion_tokens: int
    statistics: Statistics
    error: str = ""


@dataclass(frozen=True, slots=True)
class Emission:
    choice: int
    tokens: tuple[int, ...]
    text: str
    time: float  # seconds since the epoch at which the step ended
    logprobs: tuple[TokenLogprobs, ...] = ()
    trace: tuple[TokenTrace, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    finish: Finish | None = None
