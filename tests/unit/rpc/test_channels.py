"""Channels: one an address, fast failure, and none closed under its user."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio  # type: ignore[attr-defined]

from services.rpc.channels import ChannelConfig, ChannelPool, Unreachable


@pytest.fixture
async def address() -> AsyncIterator[str]:
    server = grpc.aio.server()
    health_pb2_grpc.add_HealthServicer_to_server(health_aio.HealthServicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


@pytest.fixture
async def pool() -> AsyncIterator[ChannelPool]:
    ready = ChannelPool(ChannelConfig(connect_timeout_s=0.5))
    yield ready
    await ready.close()


async def _use(pool: ChannelPool, address: str) -> None:
    async with pool.use(address):
        pass


async def test_one_channel_an_address(pool: ChannelPool, address: str) -> None:
    async with pool.use(address) as first, pool.use(address) as second:
        assert first is second
        reply = await health_pb2_grpc.HealthStub(first).Check(health_pb2.HealthCheckRequest())
        assert reply.status == health_pb2.HealthCheckResponse.SERVING
    assert len(pool) == 1


async def test_a_refused_connection_fails_at_once(address: str) -> None:
    patient = ChannelPool(ChannelConfig(connect_timeout_s=60))
    with socket.create_server(("127.0.0.1", 0)) as closing:
        dead = f"127.0.0.1:{closing.getsockname()[1]}"
    with pytest.raises(Unreachable, match=f"{dead}: connection failed"):
        await asyncio.wait_for(_use(patient, dead), 30)
    await patient.close()


async def test_a_silent_address_fails_after_the_timeout(pool: ChannelPool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never says a word
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Unreachable, match=r"no connection within 0\.5 s"):
            await _use(pool, address)


async def test_unused_channels_are_dropped_and_used_ones_stay(pool: ChannelPool, address: str) -> None:
    async with pool.use(address) as channel:
        await pool.keep_only(())
        assert len(pool) == 1
        await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    await pool.keep_only([address])
    assert len(pool) == 1
    await pool.keep_only(())
    assert len(pool) == 0
    async with pool.use(address) as again:
        assert again is not channel
