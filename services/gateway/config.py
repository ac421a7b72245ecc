"""Settings of the gateway."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from services.gateway.access.config import AccessConfig
from services.gateway.access.tls import TlsConfig
from services.rpc.channels import ChannelConfig


class GatewayConfig(BaseModel):
    """Listening, limits of one request and of all together, and time-outs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = Field(default="0.0.0.0", min_length=1, description="Interface that the gRPC front door listens on.")
    grpc_port: int = Field(default=9000, ge=0, le=65535, description="Port of the gRPC front door; 0 takes a free one.")

    max_concurrent_requests: int = Field(
        default=256,
        ge=1,
        le=100_000,
        description="Requests in progress; one more is refused as overloaded. "
        "A key may hold no more than it leaves free.",
    )
    max_choices: int = Field(default=64, ge=1, le=1024, description="Most choices of one request: prompts times n.")
    max_body_bytes: int = Field(
        default=4 << 20, ge=1024, le=1 << 30, description="Largest HTTP body or gRPC request, in bytes."
    )
    max_header_bytes: int = Field(
        default=16 << 10, ge=1024, le=1 << 20, description="Largest HTTP headers or gRPC metadata, in bytes."
    )
    max_prompt_characters: int = Field(
        default=1_000_000, ge=1, le=1 << 30, description="Longest prompt text, in characters."
    )
    max_tokens: int = Field(default=16_384, ge=1, le=1 << 20, description="Largest max_tokens that a request may ask.")

    request_timeout_s: float = Field(
        default=600.0, gt=0, le=86_400, description="Longest run of one request, in seconds."
    )
    route_timeout_s: float = Field(
        default=1.0,
        gt=0,
        le=60,
        description="Longest wait for the router, in seconds; then the target drafts for itself.",
    )
    attach_timeout_s: float = Field(
        default=0.5, gt=0, le=60, description="Deadline of handing over a lease, in seconds."
    )
    info_timeout_s: float = Field(
        default=2.0, gt=0, le=60, description="Deadline of asking a target about itself, in seconds."
    )
    target_attempts: int = Field(default=3, ge=1, le=16, description="Target replicas tried for a request.")
    resume_wait_s: float = Field(
        default=120.0,
        ge=0,
        le=3600,
        description="How long an answer that has begun waits for another replica when its own was lost, in seconds.",
    )
    suspect_s: float = Field(
        default=2.0, gt=0, le=600, description="Time that a replica is avoided after it failed a request, in seconds."
    )
    retry_after_s: float = Field(
        default=1.0, gt=0, le=600, description="Wait proposed to clients refused for load, in seconds."
    )
    drain_timeout_s: float = Field(
        default=20.0, ge=0, le=3600, description="Time for open gRPC calls to end at shutdown, in seconds."
    )

    keepalive_s: float = Field(
        default=60.0, ge=1, le=7200, description="Silence after which a gRPC client is pinged, in seconds."
    )
    keepalive_timeout_s: float = Field(
        default=20.0, gt=0, le=600, description="Silence after a ping that means a dead client, in seconds."
    )
    min_client_ping_s: float = Field(
        default=10.0, gt=0, le=3600, description="Clients that ping more often than this are disconnected, in seconds."
    )
    health_period_s: float = Field(
        default=0.25, gt=0, le=60, description="Time between two looks at health, in seconds."
    )
    report_period_s: float = Field(default=0.25, gt=0, le=10, description="Time between two load reports, in seconds.")
    totals_wait_s: float = Field(
        default=1.0, ge=0, le=10, description="Longest that a look at /metrics waits for the newest counts, in seconds."
    )
    totals_period_s: float = Field(
        default=2.0, ge=0.1, le=60, description="Time between two readings of the fleet's totals, in seconds."
    )
    lease_s: float = Field(default=2.0, gt=0, le=60, description="Silence after which this replica leaves the fleet.")
    access: AccessConfig = Field(default=AccessConfig(), description="Who may use the doors.")
    tls: TlsConfig = Field(
        default=TlsConfig(), description="Certificates of the gRPC door, and of HTTP, where Serve is started by us."
    )
    channels: ChannelConfig = Field(
        default_factory=lambda: ChannelConfig(), description="How target replicas are dialled."
    )
