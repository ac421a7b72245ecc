"""One schema for the whole service."""

from __future__ import annotations

from typing import Any, cast, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from orchestration.nodes import Demand, NodeCount, check_gpus_are_apart, node_counts
from orchestration.topology import PoolName, Topology
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


class ScaledPlacement(Placement):
    """`replicas` is the least; there may be more under load."""

    max_replicas: int | None = Field(
        default=None, ge=1, le=4096, description="Most replicas under load; absent: always as many as `replicas`."
    )


class TargetPlacement(ScaledPlacement):
    """What one target replica gets."""

    tensor_parallel_size: int = Field(default=1, ge=1, le=64, description="GPUs that one replica spreads over; only 1.")

    @field_validator("tensor_parallel_size")
    @classmethod
    def _one_gpu(cls, size: int) -> int:
        if size > 1:
            raise ValueError(
                "a target replica runs on one GPU; tensor parallelism is not supported yet, so it must be 1"
            )
        return size


class PlacementConfig(BaseModel):
    """Where the deployments other than drafters run; drafters say so themselves."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    target: TargetPlacement = Field(default=TargetPlacement(num_cpus=1.0), description="Target replicas.")
    gateway: Placement = Field(default=Placement(max_ongoing_requests=512), description="Gateway replicas.")
    router: Placement = Field(default=Placement(num_cpus=0.1, max_ongoing_requests=1024), description="Routers.")
    dcut_num_cpus: float = Field(default=0.1, ge=0, le=16, description="CPUs set aside for the one D-cut actor.")


class AutoscalingConfig(BaseModel):
    """When Serve adds target and drafter replicas, and takes some away."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    occupancy: float = Field(
        default=0.7, gt=0, le=1, description="Share of the places of all replicas that is aimed at being taken."
    )
    upscale_delay_s: float = Field(
        default=5.0, ge=0, le=3600, description="How long more replicas must be wanted before they come, in seconds."
    )
    downscale_delay_s: float = Field(
        default=300.0, ge=0, le=86_400, description="How long fewer must be wanted before some go, in seconds."
    )
    look_back_s: float = Field(
        default=5.0, ge=1, le=3600, description="Time over which the taken places are averaged, in seconds."
    )


class ServeConfig(BaseModel):
    """HTTP in front of the gateway, and what Ray Serve is told of all replicas."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    http_host: str = Field(default="127.0.0.1", min_length=1, description="Interface that HTTP listens on.")
    http_tls: bool = Field(
        default=True,
        description="HTTP has the gateway's certificate, where there is one. Off: for a proxy in front that speaks "
        "plain HTTP.",
    )
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
    topology: Topology = Field(default=Topology(), description="The nodes of a cluster.")
    autoscaling: AutoscalingConfig = Field(
        default=AutoscalingConfig(), description="When deployments with max_replicas grow and shrink."
    )
    serve: ServeConfig = Field(default=ServeConfig(), description="Ray Serve.")

    def http_options(self) -> dict[str, Any]:
        """What Serve's proxies are told: the gateway's certificate is theirs too, on every node with a proxy."""
        options: dict[str, Any] = {"host": self.serve.http_host, "port": self.serve.http_port}
        if self.is_https:
            options |= {"ssl_keyfile": str(self.gateway.tls.key), "ssl_certfile": str(self.gateway.tls.certificate)}
        return options

    @property
    def is_https(self) -> bool:
        return self.gateway.tls.is_on and self.serve.http_tls

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

    @model_validator(mode="after")
    def _fits_the_nodes(self) -> FleetConfig:
        self.check_placement()
        return self

    def check_placement(self) -> None:
        """Raises ValueError for counts out of order, replicas that fit nowhere, and GPUs shared by mistake."""
        for demand in self.demands():
            if demand.max_replicas < demand.replicas:
                raise ValueError(
                    f"{demand.setting}.max_replicas: {demand.max_replicas} is out of range; it must be at least "
                    f"replicas ({demand.replicas})"
                )
        check_gpus_are_apart(self.topology, self.demands())
        self.node_counts()

    def demands(self) -> list[Demand]:
        """What the replicas of every deployment ask of their nodes."""
        place = self.placement
        others: list[tuple[PoolName, str, Placement]] = [
            ("target", "target", place.target),
            ("gateway", "gateway", place.gateway),
            ("gateway", "router", place.router),
        ]
        return [
            Demand("placement.dcut", "gateway", 1, 1, place.dcut_num_cpus),
            *(
                Demand(
                    f"placement.{name}",
                    home_of,
                    share.replicas,
                    (share.max_replicas if isinstance(share, ScaledPlacement) else None) or share.replicas,
                    share.num_cpus,
                    share.num_gpus,
                    share.resources,
                    is_one_a_node=name == "gateway" and self.gateway.grpc_port != 0,  # each listens there
                )
                for home_of, name, share in others
            ),
            *(
                Demand(
                    f"drafters.{kind}",
                    pool_of(kind),
                    pool.replicas,
                    pool.replicas and (pool.max_replicas or pool.replicas),
                    pool.num_cpus,
                    pool.num_gpus,
                    pool.resources,
                    is_drafter=True,
                )
                for kind, pool in self.drafters.items()
            ),
        ]

    def node_counts(self) -> dict[PoolName, NodeCount]:
        """Nodes of every pool of the topology."""
        return node_counts(self.topology, self.demands())


def pool_of(kind: str) -> PoolName:
    """The pool of a drafter kind; kinds without one run on the head."""
    return cast(PoolName, kind) if kind in get_args(PoolName) else "head"
