"""A target replica whose chunks and faults are written by the test, behind a real gRPC server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import grpc
import grpc.aio

from protos import drafting_pb2, target_pb2, target_pb2_grpc
from protos import generation_pb2 as pb
from services.dcut.messages import Member

Script = Callable[[target_pb2.TargetRequest, grpc.aio.ServicerContext], AsyncIterator[pb.GenerateChunk]]


def finish(
    choice: int = 0,
    *,
    text: str = "",
    reason: pb.FinishReason = pb.FINISH_REASON_STOP,
    prompt_tokens: int = 0,
    completion_tokens: int = 2,
    stop_reason: str = "",
    drafter: str = "lookup",
    **fields: object,
) -> pb.GenerateChunk:
    """The last chunk of a choice: 4 rounds, accepted length 2.5."""
    return pb.GenerateChunk(
        choice=choice,
        text=text,
        finish_reason=reason,
        stop_reason=stop_reason,
        usage=pb.Usage(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens, cached_prompt_tokens=1),
        speculation=pb.SpeculationStats(
            drafter=drafter,
            requested_drafter="auto",
            num_drafts=3,
            num_draft_tokens=9,
            num_accepted_tokens=6,
            num_rounds=4,
            accepted_length=2.5,
            exactness="bitwise",
        ),
        **fields,  # type: ignore[arg-type]
    )


def say(*texts: str) -> Script:
    """Every choice says the texts, one chunk each."""

    async def script(
        request: target_pb2.TargetRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.GenerateChunk]:
        n = request.sampling.n or 1
        for text in texts:
            for choice in range(n):
                yield pb.GenerateChunk(choice=choice, text=text, token_ids=[1])
        for choice in range(n):
            yield finish(choice, prompt_tokens=len(request.prompt_ids), completion_tokens=len(texts))

    return script


def fail(code: grpc.StatusCode, details: str = "", after: Sequence[pb.GenerateChunk] = ()) -> Script:
    """Ends with an error after these chunks."""

    async def script(
        request: target_pb2.TargetRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.GenerateChunk]:
        for chunk in after:
            yield chunk
        await context.abort(code, details)

    return script


def stop_short(*chunks: pb.GenerateChunk) -> Script:
    """Ends well, but without finishing its choices."""

    async def script(
        request: target_pb2.TargetRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.GenerateChunk]:
        for chunk in chunks:
            yield chunk

    return script


class ScriptedTarget(target_pb2_grpc.TargetServicer):
    """Notes what it is asked."""

    def __init__(self, script: Script, name: str = "target-0", max_context: int = 64, vocabulary: int = 400) -> None:
        self.script = script
        self.name = name
        self.address = ""
        self.requests: list[target_pb2.TargetRequest] = []
        self.leases: list[drafting_pb2.Lease] = []
        self.was_cancelled = asyncio.Event()
        self._info = pb.ModelInfo(
            name="tiny",
            max_context=max_context,
            vocabulary=vocabulary,
            precision="float32",
            exactness="bitwise",
            device="cpu",
        )
        self._server = grpc.aio.server()
        self._running: set[str] = set()

    async def start(self) -> None:
        target_pb2_grpc.add_TargetServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(None)

    def member(self, sessions: int = 0, capacity: int = 16) -> Member:
        return member("target", self.name, self.address, sessions=sessions, capacity=capacity)

    async def Generate(
        self, request: target_pb2.TargetRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.GenerateChunk]:
        self.requests.append(request)
        self._running.add(request.request_id)
        try:
            async for chunk in self.script(request, context):
                yield chunk
        except asyncio.CancelledError:
            self.was_cancelled.set()
            raise
        finally:
            self._running.discard(request.request_id)

    async def AttachDrafter(
        self, request: target_pb2.AttachDrafterRequest, context: grpc.aio.ServicerContext
    ) -> target_pb2.AttachDrafterReply:
        is_running = request.request_id in self._running
        if is_running:
            self.leases.append(request.lease)
        return target_pb2.AttachDrafterReply(attached=is_running)

    async def GetInfo(self, request: target_pb2.GetInfoRequest, context: grpc.aio.ServicerContext) -> pb.ModelInfo:
        return self._info


def member(
    role: str, replica: str, address: str, *, kind: str = "", sessions: int = 0, capacity: int = 16, queue: int = 0
) -> Member:
    return Member(
        role=role,  # type: ignore[arg-type]
        replica=replica,
        address=address,
        kind=kind,
        version="1",
        node="node",
        batch=0,
        queue=queue,
        sessions=sessions,
        capacity=capacity,
        pid=1,
        exactness="bitwise",
    )


async def endless(
    request: target_pb2.TargetRequest, context: grpc.aio.ServicerContext
) -> AsyncIterator[pb.GenerateChunk]:
    if request.sampling.n != 2:
        yield pb.GenerateChunk(text="x")
    await asyncio.Event().wait()
