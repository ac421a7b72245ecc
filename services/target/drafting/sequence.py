"""What the desk knows of one sequence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from services.target.drafting.features import FeatureWindow
from services.target.drafting.interface import DraftingContext, FeatureRequest, Lease
from services.target.drafting.local import LocalLookup
from services.target.drafting.remote import DrafterLink
from services.target.drafting.state import DraftState

_FAILURES_TO_MOVE = 3


@dataclass(slots=True)
class DraftedSequence:
    """One sequence, its source of drafts, and why it is that one."""

    id: int
    context: DraftingContext
    tokens: Sequence[int]  # the engine's live list
    kinds: tuple[str, ...]  # of drafters, best first
    state: DraftState = field(default_factory=DraftState)
    features: FeatureWindow = field(default_factory=FeatureWindow)
    wanted: FeatureRequest | None = None
    lease: Lease | None = None
    lease_token: bytes = b""  # until it is used
    link: DrafterLink | None = None
    generation: int = 0  # of the link's stream that the session lives in
    local: LocalLookup | None = None
    is_beside: bool = False  # the local lookup has drafted though there was a drafter
    version: int = -1  # of the pool when the source was chosen
    choose_again_at: float = math.inf
    retry_at: float = 0.0
    failures: int = 0  # faults since the last draft
    avoided: dict[str, float] = field(default_factory=dict)  # address -> until when

    @property
    def is_connected(self) -> bool:
        """Its drafter's stream is still the one that its session was opened in."""
        return self.link is not None and self.link.traits is not None and self.link.state.generation == self.generation

    def avoid(self, until: float) -> None:
        """Its drafter has no place for it, or keeps failing it; others may."""
        if self.link is not None:
            self.avoided[self.link.address] = until
            self.version = -1

    def fail(self, now: float, min_pause_s: float, max_pause_s: float) -> None:
        """Its session was lost. At once again the first time, then with growing pauses, then elsewhere."""
        self.failures += 1
        if self.failures > 1:
            self.retry_at = now + min(min_pause_s * 2 ** (self.failures - 2), max_pause_s)
        if self.failures >= _FAILURES_TO_MOVE:
            self.avoid(now + max_pause_s)

    def succeed(self) -> None:
        self.failures = 0
        self.retry_at = 0.0
