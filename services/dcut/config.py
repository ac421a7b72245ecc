"""Settings of the D-cut actor."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from services.dcut.cluster.config import ClusterConfig


class DcutConfig(BaseModel):
    """How the fleet view is kept, and what the fleet is told."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    budget_ttl_s: float = Field(
        default=5.0, gt=0.0, le=60.0, description="A budget older than this only serves as last known good, in seconds."
    )
    settle_s: float = Field(
        default=3.0,
        ge=0.0,
        le=60.0,
        description="Time in which every replica has found a new actor; until then nobody is held to be gone.",
    )
    max_members: int = Field(default=4096, ge=1, le=65536, description="Most replicas the fleet view holds.")
    cluster: ClusterConfig = Field(
        default=ClusterConfig(), description="Prices, admission and wanted drafter replicas."
    )
