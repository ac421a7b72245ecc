"""Which nodes a cluster consists of, and which deployments run on which of them."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

PoolName = Literal["head", "gateway", "target", "mtp", "dfly", "lookup"]

LABEL = "draftfleet/pool"  # of Ray nodes; its value is the name of their pool
_LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?")


class Pool(BaseModel):
    """Nodes of one size. How many there are follows from the replicas that they hold."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cpus: int = Field(ge=1, le=1024, description="CPUs of a node.")
    memory_gib: int = Field(ge=1, le=1 << 14, description="Memory of a node, in GiB.")
    gpus: int = Field(default=0, ge=0, le=16, description="GPUs of a node.")
    gpu_type: Literal["L4", "A10G", "L40S", "A100", "H100"] | None = Field(
        default=None, description="Kind of GPU, by Ray's names."
    )
    resources: dict[str, int] = Field(default_factory=dict, description="Custom Ray resources of a node.")
    labels: dict[str, str] = Field(
        default_factory=dict, description="Further Ray labels of a node; the pool's replicas ask for them too."
    )

    @field_validator("labels")
    @classmethod
    def _well_formed(cls, labels: dict[str, str]) -> dict[str, str]:
        for key, value in labels.items():
            if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
                raise ValueError(f"{key}={value} is no label; keys and values are letters, digits, '-', '_' and '.'")
            if key.startswith(("ray.io/", "draftfleet/")):
                raise ValueError(f"{key}: the prefixes ray.io/ and draftfleet/ are taken")
        return labels

    @model_validator(mode="after")
    def _gpus_have_a_type(self) -> Pool:
        if (self.gpus > 0) != (self.gpu_type is not None):
            raise ValueError(f"gpus: {self.gpus} and gpu_type: {self.gpu_type} do not fit; name both or neither")
        return self


class Topology(BaseModel):
    """The pools of a cluster. Without any, every replica runs wherever Ray finds room."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pools: dict[PoolName, Pool] = Field(
        default_factory=dict,
        description="Nodes by what runs on them. Gateway, router and D-cut actor run on `gateway`. "
        "Whatever has no pool of its own runs on `head`.",
    )
    share_gpus: bool = Field(
        default=False, description="Lets fractions of one GPU go to a target and a drafter; both get slower by it."
    )

    @model_validator(mode="after")
    def _has_a_head(self) -> Topology:
        if self.pools and "head" not in self.pools:
            raise ValueError(f"pools: {', '.join(self.pools)} need a pool `head` too, where Ray's own services run")
        return self

    def home(self, name: PoolName) -> PoolName | None:
        """The pool that a deployment runs on; None: anywhere."""
        if not self.pools:
            return None
        return name if name in self.pools else "head"

    def selector(self, name: PoolName) -> dict[str, str]:
        """Labels that a node must have for a deployment's replicas."""
        home = self.home(name)
        return {} if home is None else self.node_labels(home)

    def node_labels(self, pool: PoolName) -> dict[str, str]:
        """Labels that every node of a pool carries."""
        return {LABEL: pool, **self.pools[pool].labels}
