"""What the engine needs of drafting: a desk that takes asks and hands out drafts.

Everything here is called from the engine's thread and never blocks, except
`wait`. A draft is only a guess, so every method may silently do nothing: the
sequence then decodes plainly.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from services.dcut.costs.drafts import DraftWait
from services.requests.speculation import Speculation
from services.requests.task import UNKNOWN_TASK, Task


@dataclass(frozen=True, slots=True)
class Guess:
    """A draft that fits its sequence as it stands."""

    tokens: tuple[int, ...]
    probabilities: tuple[float, ...]  # that each is accepted, given the ones before


@dataclass(frozen=True, slots=True)
class DraftingContext:
    """What a drafter must know of a sequence besides its tokens."""

    temperature: float
    top_k: int
    top_p: float
    noise_key: int  # 64 bits
    speculation: Speculation
    task: Task = UNKNOWN_TASK


@dataclass(frozen=True, slots=True)
class Lease:
    """A place that the router reserved at a drafter replica."""

    address: str
    kind: str
    token: bytes


@dataclass(frozen=True, slots=True)
class FeatureRequest:
    """Hidden states that a sequence's drafter wants with its committed tokens."""

    layers: tuple[int, ...]  # layer outputs, -1 the final one
    postnorm: bool  # the final one after the final norm
    window: int  # newest positions worth keeping; 0: all


@dataclass(frozen=True, slots=True)
class DraftSource:
    """Where a sequence's next draft would come from."""

    kind: str
    is_local: bool  # drafted in this process, without a wait
    max_draft: int


class DraftingDesk(Protocol):
    def open(self, sequence: int, context: DraftingContext, tokens: Sequence[int]) -> None:
        """A sequence has been admitted. `tokens` is its live list of committed
        tokens, which the desk reads whenever it has to send some."""

    def attach(self, sequence: int, lease: Lease) -> None:
        """The router found it a drafter; before this, and after losing one, the
        desk may choose for itself."""

    def features_wanted(self, sequence: int) -> FeatureRequest | None: ...

    def features_of_interest(self) -> tuple[FeatureRequest, ...]:
        """What drafters known so far want of any sequence."""

    def features_end(self, sequence: int) -> int:
        """Position after the newest hidden state held of the sequence; 0 where there is none."""

    def add_features(self, sequence: int, first_position: int, features_RTD: torch.Tensor) -> None:
        """Hidden states of committed positions, oldest first: [rows, layers, hidden]."""

    def connected_kinds(self) -> Collection[str]:
        """Kinds that have a drafter which could be used now."""

    def prefer(self, sequence: int, kind: str) -> None:
        """The sequence should go on with that kind, while there is a drafter of it."""

    def source_of(self, sequence: int) -> DraftSource | None:
        """Who would be asked for its draft; None where nobody could be."""

    def ask(self, sequences: Sequence[tuple[int, int]]) -> None:
        """Asks for drafts after the committed tokens: (sequence, at most so many).

        To be called after every step, without sequences too: drafters come and go meanwhile.
        """

    def take_waits(self) -> Sequence[DraftWait]:
        """How long the answers that came in since the last call had taken."""

    def is_pending(self, sequence: int) -> bool:
        """Whether an ask is still worth waiting for."""

    def take(self, sequence: int) -> Guess | None:
        """The draft for the sequence's committed length, once; None where there is none."""

    def drafter_of(self, sequence: int) -> str:
        """The kind that drafts for it now, or 'none'; 'mtp+lookup' where local lookup has drafted beside it."""

    def close(self, sequence: int) -> None: ...

    def wait(self, timeout_s: float) -> None:
        """Blocks until a draft arrives, `wake` is called, or the time is over."""

    def wake(self) -> None:
        """Ends a wait. Callable from any thread."""
