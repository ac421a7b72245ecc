"""Settings of a target replica's dealings with drafters."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator

from services.drafters.lookup.config import LookupConfig
from services.requests.speculation import MAX_DRAFT_TOKENS


class DraftingConfig(BaseModel):
    """Where drafts come from, how long one waits for them, and how much is kept for drafters."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kinds: tuple[str, ...] = Field(
        default=("mtp", "dfly", "lookup"),
        max_length=16,
        description="Kinds to choose from without a lease, best first.",
    )
    local_lookup: bool = Field(
        default=True, description="Draft by lookup in this process when no drafter replica can be used."
    )
    lookup: LookupConfig = Field(default=LookupConfig(), description="Settings of that local lookup.")
    lookup_from: int = Field(
        default=6,
        ge=0,
        le=64,
        description="Where a request leaves the drafter to us, text that has repeated itself for so many tokens is "
        "drafted by that lookup instead of asking a replica; 0: never.",
    )
    max_draft: int = Field(
        default=MAX_DRAFT_TOKENS, ge=0, le=MAX_DRAFT_TOKENS, description="Most draft tokens of a round."
    )
    fanout: int = Field(default=4, ge=1, le=64, description="Drafter replicas of one kind that are held connected.")
    max_links: int = Field(default=32, ge=1, le=1024, description="Connections to drafter replicas, leases included.")
    min_wait_ms: float = Field(default=3.0, gt=0, le=10000, description="A draft is always waited for this long.")
    max_wait_ms: float = Field(default=60.0, gt=0, le=10000, description="A draft is never waited for longer.")
    quiet_ms: float = Field(
        default=500.0, gt=0, le=60000, description="A drafter that answers nothing for this long is not asked."
    )
    stall_s: float = Field(
        default=10.0, gt=0, le=600, description="One that answers nothing for this long is reconnected."
    )
    connect_timeout_s: float = Field(default=5.0, gt=0, le=60, description="Time for a connection and its hello.")
    min_backoff_s: float = Field(default=0.1, gt=0, le=60, description="Pause before the first attempt to reconnect.")
    max_backoff_s: float = Field(default=5.0, gt=0, le=600, description="Longest pause between attempts.")
    refresh_s: float = Field(default=0.25, gt=0, le=60, description="How often the fleet view is looked at.")
    max_message_bytes: int = Field(
        default=4 << 20, ge=1 << 16, le=64 << 20, description="Largest message; not above what the drafters take."
    )
    chunk_bytes: int = Field(default=1 << 20, ge=1 << 10, le=32 << 20, description="Hidden states sent in one entry.")
    max_unsent_bytes: int = Field(
        default=64 << 20, ge=1 << 20, le=1 << 32, description="Backlog of one connection before frames are dropped."
    )
    feature_window: int = Field(
        default=1024, ge=1, le=1 << 17, description="Newest positions whose hidden states are kept for a sequence."
    )
    max_feature_bytes: int = Field(
        default=256 << 20, ge=1 << 20, le=1 << 38, description="Hidden states kept for all sequences together."
    )

    @model_validator(mode="after")
    def _ordered(self) -> DraftingConfig:
        for low, high in (("min_wait_ms", "max_wait_ms"), ("min_backoff_s", "max_backoff_s")):
            if getattr(self, high) < getattr(self, low):
                raise ValueError(
                    f"{high}: {getattr(self, high)} is out of range; it must be at least {low} ({getattr(self, low)})"
                )
        if self.lookup_from > self.lookup.max_ngram:
            raise ValueError(
                f"lookup_from: {self.lookup_from} is out of range; it must be at most lookup.max_ngram "
                f"({self.lookup.max_ngram}), where matches are not compared any further"
            )
        if self.chunk_bytes * 2 > self.max_message_bytes:
            raise ValueError(
                f"chunk_bytes: {self.chunk_bytes} is out of range; it must be at most half of max_message_bytes "
                f"({self.max_message_bytes})"
            )
        return self
