"""Replicas of one node take the next port of their range that is free."""

from __future__ import annotations

import socket

import grpc.aio
import pytest
from pydantic import ValidationError

from services.rpc.ports import ANY_PORT, PortRange, bind


def server() -> grpc.aio.Server:
    return grpc.aio.server(options=(("grpc.so_reuseport", 0),))


async def test_the_next_free_port_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        first = taken.getsockname()[1]
        assert bind(server(), "127.0.0.1", PortRange(first=min(first, 65535 - 8), count=8)) != first
        with pytest.raises(OSError, match=f"none of the ports {first} to {first} of 127.0.0.1 can be listened on"):
            bind(server(), "127.0.0.1", PortRange(first=first, count=1))
    assert bind(server(), "127.0.0.1", ANY_PORT) > 0


def test_a_range_ends_in_time() -> None:
    assert PortRange(first=65535, count=1).last == 65535
    with pytest.raises(ValidationError, match="end past 65535"):
        PortRange(first=65535, count=2)
