"""The stream of one target replica: hello, frames in, replies out."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from protos import drafting_pb2 as pb
from services.drafters.batcher import Batcher
from services.drafters.config import WireLimits
from services.drafters.drafter import Traits
from services.drafters.intake import Caller, Intake
from services.drafters.metrics import DrafterMetrics
from services.drafters.validation import agree_protocol, check_hello

_log = logging.getLogger(__name__)
_EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]

Context = grpc.aio.ServicerContext[bytes, bytes]


class TargetStream:
    """Frames travel as raw bytes, so that one that does not parse is counted instead of ending the stream."""

    def __init__(
        self,
        number: int,
        replica: str,
        traits: Traits,
        intake: Intake,
        batcher: Batcher,
        limits: WireLimits,
        metrics: DrafterMetrics,
    ) -> None:
        self._number = number
        self._replica = replica
        self._traits = traits
        self._intake = intake
        self._batcher = batcher
        self._limits = limits
        self._metrics = metrics
        self._outbox: asyncio.Queue[bytes] = asyncio.Queue(limits.max_unread_replies)

    async def serve(self, context: Context) -> None:
        """Runs until the target ends the stream; its sessions end with it."""
        caller = await self._greet(context)
        _log.info("target %s connected", caller.replica)
        writer = asyncio.create_task(self._write(context))
        try:
            while True:
                await self._batcher.room()
                data: Any = await context.read()
                if data is _EOF:
                    break
                self._take_in(caller, data)
        finally:
            writer.cancel()
            self._intake.drop_stream(self._number)
            self._batcher.notify()
            _log.info("target %s disconnected", caller.replica)

    def send(self, reply: pb.RoundReply) -> None:
        try:
            self._outbox.put_nowait(pb.DrafterFrame(reply=reply).SerializeToString())
        except asyncio.QueueFull:
            self._metrics.dropped_replies += 1

    async def _greet(self, context: Context) -> Caller:
        try:
            data: Any = await asyncio.wait_for(context.read(), self._limits.hello_timeout_s)
        except asyncio.TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "hello: none came in time")
        hello = None if data is _EOF else _parsed(data)
        if hello is None or not hello.HasField("hello"):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "hello: the first message must be one")
            raise AssertionError("abort raises")
        try:
            protocol = agree_protocol(hello.hello.protocol, hello.hello.oldest_protocol)
            check_hello(hello.hello, self._traits)
        except ValueError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        traits = self._traits
        answer = pb.DrafterHello(
            protocol=protocol,
            replica=self._replica,
            kind=traits.kind,
            max_draft=traits.max_draft,
            feature_layers=traits.feature_layers,
            features_postnorm=traits.features_postnorm,
            window=traits.window,
            max_position=traits.max_position,
        )
        await context.write(pb.DrafterFrame(hello=answer).SerializeToString())
        return Caller(self._number, hello.hello.replica, hello.hello.vocabulary, hello.hello.hidden_size)

    def _take_in(self, caller: Caller, data: bytes) -> None:
        self._metrics.frames += 1
        frame = _parsed(data)
        if frame is None or not frame.HasField("round") or len(frame.round.entries) > self._limits.max_entries:
            self._metrics.unreadable_frames += 1
            return
        now = asyncio.get_running_loop().time()
        faults = self._intake.admit(caller, frame.round, now)
        if faults:
            self.send(pb.RoundReply(frame=frame.round.frame, entries=faults))
        self._batcher.notify()

    async def _write(self, context: Context) -> None:
        try:
            while True:
                await context.write(await self._outbox.get())
        except (grpc.aio.BaseError, grpc.RpcError, asyncio.InvalidStateError) as error:
            _log.info("stream %d can no longer be written to: %s", self._number, error)


def _parsed(data: bytes) -> pb.TargetFrame | None:
    try:
        return pb.TargetFrame.FromString(data)
    except DecodeError:
        return None
