"""The hosts of a cluster that no cloud provides."""

from __future__ import annotations

import ipaddress

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from orchestration.config import FleetConfig
from orchestration.topology import PoolName


class Hosts(BaseModel):
    """Addresses by pool, and how to log in."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pools: dict[PoolName, tuple[str, ...]] = Field(description="IP addresses of the hosts of every pool; one head.")
    ssh_user: str = Field(default="ubuntu", min_length=1, description="User on all hosts.")
    ssh_private_key: str = Field(default="~/.ssh/id_ed25519", min_length=1, description="Key of that user.")

    @field_validator("pools")
    @classmethod
    def _addresses(cls, pools: dict[PoolName, tuple[str, ...]]) -> dict[PoolName, tuple[str, ...]]:
        seen = set()
        for address in (address for addresses in pools.values() for address in addresses):
            ipaddress.ip_address(address)
            if address in seen:
                raise ValueError(f"{address} is named twice; a host belongs to one pool")
            seen.add(address)
        return pools

    @model_validator(mode="after")
    def _one_head(self) -> Hosts:
        if len(self.pools.get("head", ())) != 1:
            raise ValueError("pools.head: it must name exactly one host")
        return self

    @property
    def head(self) -> str:
        return self.pools["head"][0]

    def check(self, config: FleetConfig) -> None:
        """Raises ValueError when a pool of the fleet has too few hosts, or one of these is not the fleet's."""
        counts = config.node_counts()
        for name in self.pools:
            if name not in counts:
                raise ValueError(f"pools.{name}: the topology has no such pool")
        for name, count in counts.items():
            here = len(self.pools.get(name, ()))
            if here < count.min:
                raise ValueError(f"pools.{name}: {here} hosts are too few; the replicas need at least {count.min}")
