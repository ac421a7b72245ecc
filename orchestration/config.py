"""One schema for the whole service."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from services.dcut.config import DcutConfig
from services.drafters.config import DrafterConfig
from services.gateway.config import GatewayConfig
from services.models.config import ModelConfig
from services.router.config import RouterConfig
from services.target.config import EngineConfig


class Placement(BaseModel):
    """What one replica of a deployment gets from the cluster, and how many there are."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    replicas: int = Field(default=1, ge=1, le=4096, description="Replicas to run.")
    num_cpus: float = Field(default=0.25, ge=0, le=1024, description="CPUs that Ray sets aside for a replica.")
    num_gpus: float = Field(default=0.0, ge=0, le=16, description="GPUs that Ray sets aside; a fraction shares one.")
    resources: dict[str, float] = Field(default_factory=dict, description="Custom Ray resources of a replica.")
    max_ongoing_requests: int = Field(
        default=256, ge=1, le=100_000, description="Serve calls that a replica handles at a time."
    )


class PlacementConfig(BaseModel):
    """Where the deployments other than drafters run; drafters say so themselves."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    target: Placement = Field(default=Placement(num_cpus=1.0), description="Target replicas.")
    gateway: Placement = Field(default=Placement(max_ongoing_requests=512), description="Gateway replicas.")
    router: Placement = Field(default=Placement(num_cpus=0.1, max_ongoing_requests=1024), description="Routers.")
    dcut_num_cpus: float = Field(default=0.1, ge=0, le=16, description="CPUs set aside for the one D-cut actor.")


class ServeConfig(BaseModel):
    """HTTP in front of the gateway, and what Ray Serve is told of all replicas."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    http_host: str = Field(default="127.0.0.1", min_length=1, description="Interface that HTTP listens on.")
    http_port: int = Field(default=8000, ge=1, le=65535, description="Port of the HTTP API.")
    health_check_period_s: float = Field(
        default=1.0, ge=0.1, le=60, description="Seconds between two health checks of a replica."
    )
    health_check_timeout_s: float = Field(
        default=15.0, ge=1, le=600, description="A replica whose health check takes longer is replaced, in seconds."
    )
    drain_s: float = Field(
        default=20.0, ge=0, le=3600, description="Longest that a stopping replica may finish its requests, in seconds."
    )


_DRAFTERS: dict[str, dict[str, float]] = {"lookup": {}, "mtp": {"num_cpus": 0.1}, "dfly": {"num_cpus": 0.1}}


class FleetConfig(BaseModel):
    """The whole service: model, engine, drafter pools, gateway, router, D-cut, placement."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: ModelConfig = Field(default=ModelConfig(), description="The target model.")
    engine: EngineConfig = Field(default=EngineConfig(), description="The engine of a target replica.")
    drafters: dict[str, DrafterConfig] = Field(
        default_factory=lambda: {
            kind: DrafterConfig.model_validate({"kind": kind, **pool}) for kind, pool in _DRAFTERS.items()
        },
        description="Drafter pools by kind. Kinds that are not named keep their defaults, replicas: 0 starts none of a "
        "kind, and those without weights for the target are left out. An empty mapping leaves the targets to draft "
        "for themselves.",
    )
    gateway: GatewayConfig = Field(default=GatewayConfig(), description="The public doors.")
    router: RouterConfig = Field(default=RouterConfig(), description="The choice of drafters.")
    dcut: DcutConfig = Field(default=DcutConfig(), description="The fleet view.")
    placement: PlacementConfig = Field(default=PlacementConfig(), description="Replicas and their resources.")
    serve: ServeConfig = Field(default=ServeConfig(), description="Ray Serve.")

    @model_validator(mode="before")
    @classmethod
    def _name_kinds(cls, values: Any) -> Any:
        """A pool's key is its kind."""
        if not isinstance(values, dict) or not isinstance(values.get("drafters"), dict) or not values["drafters"]:
            return values
        pools = {
            kind: {"kind": kind, **_DRAFTERS.get(kind, {}), **pool} if isinstance(pool, dict) else pool
            for kind, pool in {**_DRAFTERS, **values["drafters"]}.items()
        }
        return {**values, "drafters": pools}

    @model_validator(mode="after")
    def _kinds_agree(self) -> FleetConfig:
        for key, pool in self.drafters.items():
            if pool.kind != key:
                raise ValueError(f"drafters.{key}.kind: {pool.kind!r} must be {key!r}, the key of its pool")
        return self
