"""The connection to one drafter replica: one stream, reconnected for ever with growing pauses."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from protos import drafting_pb2 as pb
from services.drafters.drafter import Traits
from services.rpc.credential import Credential, metadata_of
from services.target.drafting.config import DraftingConfig
from services.target.drafting.counters import DraftingCounters
from services.target.drafting.traits import checked_traits
from services.target.drafting.waits import WaitTracker

_log = logging.getLogger(__name__)
_EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]
_ROUNDS = f"/{pb.DESCRIPTOR.services_by_name['Drafting'].full_name}/Rounds"
_CANCEL_AGAIN_S = 0.1
_STABLE_S = 5.0  # a stream that lived for so long resets the pauses


@dataclass(frozen=True, slots=True)
class Inbound:
    """A reply frame, and where and when it came in."""

    link: DrafterLink
    generation: int
    reply: pb.RoundReply
    arrived: float  # time.monotonic


@dataclass(frozen=True, slots=True)
class LinkState:
    """Replaced as a whole, so that any thread reads a consistent one."""

    generation: int  # rises with every stream; sessions live no longer than theirs
    traits: Traits | None  # None: not connected


class DrafterLink:
    """`run` belongs to the background loop; the other methods and `waits` to the engine's thread."""

    def __init__(
        self,
        address: str,
        hello: pb.TargetHello,
        config: DraftingConfig,
        counters: DraftingCounters,
        loop: asyncio.AbstractEventLoop,
        on_reply: Callable[[Inbound], None],
        on_change: Callable[[], None],
        credential: Credential | None = None,
    ) -> None:
        self.address = address
        self.state = LinkState(0, None)
        self.waits = WaitTracker(config.min_wait_ms / 1e3, config.max_wait_ms / 1e3)
        self.next_frame = 1
        self._timed_generation = 0
        self._hello = hello
        self._metadata = metadata_of(credential)
        self._config = config
        self._counters = counters
        self._loop = loop
        self._on_reply = on_reply
        self._on_change = on_change
        self._outbox: deque[tuple[int, bytes]] = deque()
        self._queued_bytes = 0  # grows in the engine's thread only
        self._written_bytes = 0  # grows in the loop only
        self._has_frames = asyncio.Event()
        self._call: Any = None
        self._is_stopping = False
        self._task: asyncio.Task[None] | None = None
        self._complaint = ""

    @property
    def traits(self) -> Traits | None:
        return self.state.traits

    def send(self, generation: int, frames: list[bytes]) -> bool:
        """Queues frames for the stream of that generation; False when the backlog is full."""
        size = sum(len(frame) for frame in frames)
        if self._queued_bytes - self._written_bytes + size > self._config.max_unsent_bytes:
            return False
        self._queued_bytes += size
        self._outbox.extend((generation, frame) for frame in frames)
        self._loop.call_soon_threadsafe(self._has_frames.set)
        return True

    def silence_s(self, now: float) -> float:
        """For how long the stream that is open now has left an ask unanswered."""
        generation = self.state.generation
        if self._timed_generation != generation:  # what the last stream left unanswered is over
            self._timed_generation = generation
            self.waits.forget()
        return self.waits.silence_s(now)

    def reset(self) -> None:
        """Ends the stream; a new one is made."""
        self.waits.forget()
        self._loop.call_soon_threadsafe(self._cancel_call)

    def start(self) -> None:
        """On the loop."""
        self._task = self._loop.create_task(self._run(), name=f"drafter {self.address}")

    async def stop(self) -> None:
        """On the loop."""
        self._is_stopping = True
        # A cancellation can get lost while a call fails of itself, so once may not be enough.
        while self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=_CANCEL_AGAIN_S)

    def _cancel_call(self) -> None:
        if self._call is not None:
            self._call.cancel()

    async def _run(self) -> None:
        pause = self._config.min_backoff_s
        while not self._is_stopping:
            started = self._loop.time()
            was_connected = self.state.generation
            try:
                await self._connect()
                reason = "the stream ended"
            except asyncio.CancelledError:
                if self._is_stopping:
                    raise
                reason = "the call was cancelled"
            except grpc.aio.AioRpcError as error:
                reason = f"{error.code().name}: {error.details()}"
            except (ValueError, DecodeError) as error:
                reason = f"unusable: {error}"
            except (asyncio.TimeoutError, asyncio.InvalidStateError, grpc.aio.UsageError) as error:
                reason = f"{type(error).__name__}: {error}"
            except Exception as error:
                # The link outlives anything: a drafter that is lost for good would be lost silently.
                _log.exception("drafter %s: the connection failed unexpectedly", self.address)
                reason = type(error).__name__
            finally:
                self._disconnect()
            if self.state.generation > was_connected and self._loop.time() - started > _STABLE_S:
                pause = self._config.min_backoff_s
            if reason != self._complaint:
                _log.warning("drafter %s: %s; trying again", self.address, reason)
                self._complaint = reason
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, self._config.max_backoff_s)

    async def _connect(self) -> None:
        limit = self._config.max_message_bytes
        options = (
            ("grpc.max_receive_message_length", limit),
            ("grpc.max_send_message_length", limit),
            ("grpc.use_local_subchannel_pool", 1),  # pauses are ours alone, not the process's
            ("grpc.enable_http_proxy", 0),  # a replica is dialled by its node's address
            ("grpc.keepalive_time_ms", 10_000),
            ("grpc.keepalive_timeout_ms", 5_000),
        )
        async with grpc.aio.insecure_channel(self.address, options) as channel:
            # Raw bytes both ways, so that a frame that does not parse is counted instead of ending the stream.
            open_stream: Any = channel.stream_stream
            call: Any = open_stream(_ROUNDS)(metadata=self._metadata)
            self._call = call
            traits = await asyncio.wait_for(self._greet(call), self._config.connect_timeout_s)
            self.state = LinkState(self.state.generation + 1, traits)
            self._counters.connects += 1
            self._complaint = ""
            _log.info("drafter %s (%s) connected", self.address, traits.kind)
            self._on_change()
            writer = self._loop.create_task(self._write(call, self.state.generation))
            try:
                await self._read(call, self.state.generation)
            finally:
                writer.cancel()
                await asyncio.gather(writer, return_exceptions=True)

    async def _greet(self, call: Any) -> Traits:
        await call.write(pb.TargetFrame(hello=self._hello).SerializeToString())
        data = await call.read()
        if data is _EOF:
            await _raise_status(call)
            raise ValueError("it ended the stream without a hello")
        frame = pb.DrafterFrame.FromString(data)
        if not frame.HasField("hello"):
            raise ValueError("its first message is not a hello")
        return checked_traits(frame.hello)

    async def _read(self, call: Any, generation: int) -> None:
        while True:
            data = await call.read()
            if data is _EOF:
                await _raise_status(call)
                return
            try:
                frame = pb.DrafterFrame.FromString(data)
            except DecodeError:
                frame = None
            if frame is None or not frame.HasField("reply"):
                self._counters.unreadable_frames += 1
                continue
            self._on_reply(Inbound(self, generation, frame.reply, time.monotonic()))

    async def _write(self, call: Any, generation: int) -> None:
        while True:
            self._has_frames.clear()
            while self._outbox:
                frame_generation, frame = self._outbox.popleft()
                self._written_bytes += len(frame)
                if frame_generation == generation:
                    await call.write(frame)
            await self._has_frames.wait()

    def _disconnect(self) -> None:
        self._call = None
        if self.state.traits is not None:
            self.state = LinkState(self.state.generation, None)
            self._counters.disconnects += 1
            self._on_change()
        while self._outbox:
            self._written_bytes += len(self._outbox.popleft()[1])


async def _raise_status(call: Any) -> None:
    code = await call.code()
    if code is not grpc.StatusCode.OK:
        raise grpc.aio.AioRpcError(
            code, await call.initial_metadata(), await call.trailing_metadata(), await call.details(), None
        )
