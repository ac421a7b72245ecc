"""Settings of one pool of drafter replicas."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from services.drafters.lookup.config import LookupConfig
from services.drafters.neural.settings import NeuralSettings
from services.requests.speculation import MAX_DRAFT_TOKENS
from services.rpc.ports import ANY_PORT, PortRange


class SessionLimits(BaseModel):
    """How many sequences a replica serves, and when it forgets one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_sessions: int = Field(default=256, ge=1, le=65536, description="Open sequences, reserved places included.")
    max_positions: int = Field(default=131072, ge=16, le=1 << 20, description="Tokens of one sequence.")
    lease_ttl_s: float = Field(
        default=10.0, gt=0, le=600, description="A reserved place that is not taken lapses after this."
    )
    evict_idle_s: float = Field(
        default=1.0,
        ge=0,
        le=600,
        description="A full replica forgets the least recently used sequence idle for this long.",
    )
    idle_ttl_s: float = Field(default=600.0, gt=0, le=86400, description="A sequence idle for longer is forgotten.")


class WireLimits(BaseModel):
    """Bounds on what a target may send."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_message_bytes: int = Field(
        default=4 << 20, ge=1 << 16, le=64 << 20, description="Largest message in either direction."
    )
    max_entries: int = Field(
        default=1024, ge=512, le=65536, description="Entries of one frame; targets send up to 512."
    )
    max_streams: int = Field(default=1024, ge=1, le=65536, description="Target replicas connected at a time.")
    max_pending_bytes: int = Field(
        default=256 << 20,
        ge=1 << 20,
        le=1 << 36,
        description="Undrafted input held before streams are read no further.",
    )
    max_unread_replies: int = Field(
        default=256,
        ge=1,
        le=65536,
        description="Reply frames held for a target that does not read; further ones are dropped.",
    )
    hello_timeout_s: float = Field(
        default=10.0, gt=0, le=60, description="A stream that says no hello for this long is ended."
    )


class DrafterConfig(BaseModel):
    """One pool of drafter replicas of one kind."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: str = Field(
        default="lookup", min_length=1, max_length=32, description="A kind of services/drafters/registry.py."
    )
    replicas: int = Field(default=1, ge=0, le=1024, description="Replicas to run, at least; 0: none, ever.")
    max_replicas: int | None = Field(
        default=None, ge=1, le=1024, description="Most replicas under load; absent: always as many as `replicas`."
    )
    num_cpus: float = Field(default=0.25, ge=0, le=256, description="CPUs that Ray sets aside for a replica.")
    num_gpus: float = Field(default=0.0, ge=0, le=8, description="GPUs that Ray sets aside for a replica.")
    resources: dict[str, float] = Field(default_factory=dict, description="Custom Ray resources of a replica.")
    threads: int = Field(default=1, ge=1, le=256, description="Compute threads of a replica.")
    max_draft: int = Field(default=MAX_DRAFT_TOKENS, ge=1, le=MAX_DRAFT_TOKENS, description="Most tokens of one draft.")
    batch_window_ms: float = Field(
        default=0.0, ge=0, le=50, description="Wait for company before a batch starts; 0: take what has arrived."
    )
    report_period_s: float = Field(
        default=0.25, ge=0.01, le=10, description="Seconds between two reports to the D-cut actor."
    )
    lease_s: float = Field(
        default=2.0, gt=0, le=60, description="A replica that is silent for longer leaves the fleet view."
    )
    drain_s: float = Field(
        default=5.0, ge=0, le=600, description="How long a stopping replica goes on serving open sequences."
    )
    sessions: SessionLimits = Field(default=SessionLimits(), description="Session bounds.")
    ports: PortRange = Field(default=ANY_PORT, description="Where routers and targets reach a replica.")
    wire: WireLimits = Field(default=WireLimits(), description="Message bounds.")
    lookup: LookupConfig = Field(default=LookupConfig(), description="Settings of the kind lookup.")
    neural: NeuralSettings = Field(default=NeuralSettings(), description="Settings of the kinds mtp and dfly.")
