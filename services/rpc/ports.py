"""Where a replica's own gRPC server listens."""

from __future__ import annotations

import grpc.aio
from pydantic import BaseModel, ConfigDict, Field, model_validator


class PortRange(BaseModel):
    """Ports that replicas of one node try in turn, so that a firewall can be told of them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    first: int = Field(default=0, ge=0, le=65535, description="First port of the range; 0: any free port will do.")
    count: int = Field(default=32, ge=1, le=4096, description="Ports in the range: most replicas of a node, and some.")

    @model_validator(mode="after")
    def _ends_in_time(self) -> PortRange:
        if self.first and self.last > 65535:
            raise ValueError(f"first: {self.first} is out of range; {self.count} ports from there end past 65535")
        return self

    @property
    def last(self) -> int:
        return self.first + self.count - 1


ANY_PORT = PortRange()


def bind(server: grpc.aio.Server, host: str, ports: PortRange) -> int:
    """The port that was free. Raises OSError when none is."""
    candidates = range(ports.first, ports.last + 1) if ports.first else range(1)
    for port in candidates:
        try:
            return server.add_insecure_port(f"{host}:{port}")
        except RuntimeError:
            continue  # somebody else listens there
    named = f"none of the ports {ports.first} to {ports.last}" if ports.first else "no port"
    raise OSError(f"ports: {named} of {host} can be listened on")
