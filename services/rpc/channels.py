"""gRPC client channels to replicas, one an address, dropped when a replica leaves."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import grpc
import grpc.aio
from pydantic import BaseModel, ConfigDict, Field

from services.rpc.credential import Credential, metadata_of


class ChannelConfig(BaseModel):
    """How replicas are dialled."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    connect_timeout_s: float = Field(default=2.0, gt=0, le=60, description="Longest wait for a connection, in seconds.")
    max_message_bytes: int = Field(
        default=16 << 20, ge=1 << 16, le=1 << 30, description="Largest message sent or received, in bytes."
    )
    keepalive_s: float = Field(
        default=20.0, ge=1, le=3600, description="Silence after which a peer is pinged, in seconds."
    )
    keepalive_timeout_s: float = Field(
        default=5.0, gt=0, le=600, description="Silence after a ping that means a dead peer, in seconds."
    )

    def options(self) -> list[tuple[str, int]]:
        """Channel arguments for grpc.aio."""
        return [
            ("grpc.max_send_message_length", self.max_message_bytes),
            ("grpc.max_receive_message_length", self.max_message_bytes),
            ("grpc.keepalive_time_ms", round(self.keepalive_s * 1000)),
            ("grpc.keepalive_timeout_ms", round(self.keepalive_timeout_s * 1000)),
            ("grpc.initial_reconnect_backoff_ms", 200),
            # The longest that one attempt takes, too; our own timeout comes first.
            ("grpc.min_reconnect_backoff_ms", round(self.connect_timeout_s * 2000)),
            ("grpc.max_reconnect_backoff_ms", 2000),
            # A replica is dialled by its node's address; a proxy from the environment has no part in it.
            ("grpc.enable_http_proxy", 0),
        ]


class Unreachable(ConnectionError):
    """No connection to the address within the time allowed."""


class ChannelPool:
    """Belongs to one event loop. Calls over its channels are to carry its `metadata`, which shows the credential."""

    def __init__(self, config: ChannelConfig, credential: Credential | None = None) -> None:
        self._config = config
        self.metadata = metadata_of(credential)
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._users: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._channels)

    @asynccontextmanager
    async def use(self, address: str) -> AsyncIterator[grpc.aio.Channel]:
        """A connected channel to `address` ("host:port"), kept open for as long as it is used.

        Raises Unreachable on the first failed attempt instead of waiting for the next one.
        """
        channel = self._channels.get(address)
        if channel is None:
            channel = grpc.aio.insecure_channel(address, options=self._config.options())
            self._channels[address] = channel
        self._users[address] += 1
        try:
            await self._connect(channel, address)
            yield channel
        finally:
            self._users[address] -= 1
            if not self._users[address]:
                del self._users[address]

    async def keep_only(self, addresses: Collection[str]) -> None:
        """Closes the channels to all other addresses that nobody uses now."""
        for address in self._channels.keys() - set(addresses) - self._users.keys():
            await self._channels.pop(address).close(None)

    async def close(self) -> None:
        """Calls that still run are cancelled."""
        while self._channels:
            _, channel = self._channels.popitem()
            await channel.close(None)

    async def _connect(self, channel: grpc.aio.Channel, address: str) -> None:
        if channel.get_state() == grpc.ChannelConnectivity.READY:
            return
        # Not wait_for: up to Python 3.11 it may swallow a cancellation, and a request would run on without its client.
        connecting = asyncio.ensure_future(_until_ready(channel))
        try:
            done, _ = await asyncio.wait({connecting}, timeout=self._config.connect_timeout_s)
        finally:
            connecting.cancel()
        if not done:
            raise Unreachable(f"{address}: no connection within {self._config.connect_timeout_s} s")
        if not connecting.result():
            raise Unreachable(f"{address}: connection failed")


async def _until_ready(channel: grpc.aio.Channel) -> bool:
    """False as soon as an attempt fails."""
    state = channel.get_state(try_to_connect=True)
    while state != grpc.ChannelConnectivity.READY:
        if state in (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN):
            return False
        await channel.wait_for_state_change(state)
        state = channel.get_state(try_to_connect=True)
    return True
