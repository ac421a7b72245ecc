"""What every drafter kind implements.

A drafter sees batches over sequences of all target replicas. The server has
checked every message before: sessions are open, positions are contiguous, tokens
and tensors have the right range, shape and size. All methods are called from one
worker thread, never at the same time; within one batch in the order close, open,
catch_up, append, draft, and with each session at most once per call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Traits:
    """What a drafter is and what it wants, told to every target at hello."""

    kind: str
    max_draft: int  # most tokens of one draft
    max_position: int  # positions at and past it are not drafted
    feature_layers: tuple[int, ...] = ()  # hidden states it wants; empty: none. -1 is the final one
    features_postnorm: bool = False  # the final one after the target's final norm
    window: int = 0  # newest positions it can use; 0: all
    vocabulary: int = 0  # token ids of the target it was made for; 0: any
    hidden_size: int = 0  # of the target it was made for; 0: any


@dataclass(frozen=True, slots=True)
class Features:
    """Hidden states of consecutive positions, as they came over the wire."""

    first: int  # position of the first row
    dtype: str  # bfloat16, float16 or float32
    shape: tuple[int, int, int]  # [rows, layers, hidden]
    data: bytes  # little endian, C order

    @property
    def end(self) -> int:
        return self.first + self.shape[0]


@dataclass(frozen=True, slots=True)
class Opening:
    """A new session, still without tokens."""

    session: int
    temperature: float
    noise_key: int  # 64 bits
    top_k: int
    top_p: float


@dataclass(frozen=True, slots=True)
class Extension:
    """Committed tokens of positions base, base + 1, ... with hidden states in contiguous chunks.

    Hidden states lag the tokens by one position: the newest token has none yet.
    """

    session: int
    base: int
    tokens: tuple[int, ...]
    features: tuple[Features, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """Wants at most `max_draft` tokens for positions base, base + 1, ..."""

    session: int
    base: int
    max_draft: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """Draft tokens, and for each the probability that it is accepted given the ones before."""

    tokens: tuple[int, ...] = ()
    probabilities: tuple[float, ...] = ()


class Drafter(Protocol):
    """A drafter kind at work. An exception costs the sessions of its batch, not the replica."""

    traits: Traits

    def open(self, openings: Sequence[Opening]) -> None: ...

    def append(self, extensions: Sequence[Extension]) -> None:
        """Each continues what its session holds."""

    def catch_up(self, extensions: Sequence[Extension]) -> None:
        """Each replaces what its session holds; its base is the oldest position held then."""

    def draft(self, questions: Sequence[Question]) -> Sequence[Proposal]:
        """One proposal for each question, in order."""

    def close(self, sessions: Sequence[int]) -> None:
        """Unknown sessions are ignored."""
