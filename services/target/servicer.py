"""The gRPC face of a target replica, on the event loop; the engine runs in its own thread."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from protos import generation_pb2, target_pb2, target_pb2_grpc
from services.dcut.local.messages import encode_snapshot
from services.requests.codec import sampling_from_proto, speculation_from_proto, task_from_proto
from services.target.codec import to_chunk
from services.target.drafting.interface import Lease
from services.target.engine import Engine, EngineFull
from services.target.grammar.compiler import CompilerBusy
from services.target.sequence import Progress, Request
from services.target.unread import SlowReader, Unread

if TYPE_CHECKING:
    _Context = grpc.aio.ServicerContext[target_pb2.TargetRequest, generation_pb2.GenerateChunk]

_SNAPSHOT_TIMEOUT_S = 5.0

log = logging.getLogger(__name__)


class TargetServicer(target_pb2_grpc.TargetServicer):
    """`draftfleet.target.v1.Target` over one engine."""

    def __init__(self, engine: Engine, model_name: str) -> None:
        self._engine = engine
        self._model_name = model_name
        self._running: set[str] = set()

    @property
    def num_requests(self) -> int:
        return len(self._running)

    async def Generate(
        self, request: target_pb2.TargetRequest, context: _Context
    ) -> AsyncIterator[generation_pb2.GenerateChunk]:
        unread = Unread(self._engine.config.max_unread_chunks, lambda: self._engine.abort(request.request_id))
        try:
            if not request.request_id:
                raise ValueError("request_id: it is empty")
            sampling = sampling_from_proto(request.sampling)
            speculation = speculation_from_proto(request.speculation)
            task = task_from_proto(request.task_class, request.class_confidence)
            prompt = tuple(request.prompt_ids)
            progress = tuple(Progress(begun.choice, tuple(begun.token_ids)) for begun in request.progress)
            schema = sampling.response_format
            grammar = None if schema is None else await self._engine.grammars.grammar(schema)
            self._engine.submit(
                Request(
                    request.request_id,
                    prompt,
                    sampling,
                    speculation,
                    unread.sink,
                    task,
                    progress,
                    grammar,
                    request.tenant,
                )
            )
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except (EngineFull, CompilerBusy) as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        exactness = self._engine.target.verdict.exactness
        left = len(progress) or sampling.n
        is_first = dict.fromkeys(range(sampling.n), True)
        self._running.add(request.request_id)
        try:
            while left:
                emission = await unread.next()
                finish = emission.finish
                if finish is not None and finish.reason == "error":
                    await context.abort(grpc.StatusCode.INTERNAL, finish.error)
                if finish is not None and finish.reason == "refused":
                    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, finish.error)
                chunk = to_chunk(emission, speculation.drafter, exactness)
                if is_first[emission.choice]:
                    is_first[emission.choice] = False
                    chunk.seed, chunk.request_id = sampling.seed or 0, request.request_id
                left -= finish is not None
                yield chunk
        except SlowReader as error:
            await context.abort(grpc.StatusCode.ABORTED, str(error))
        finally:
            self._running.discard(request.request_id)
            if left:  # the client went away, or one choice failed
                self._engine.abort(request.request_id)

    async def AttachDrafter(
        self, request: target_pb2.AttachDrafterRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> target_pb2.AttachDrafterReply:
        is_running = request.request_id in self._running
        if is_running:
            lease = request.lease
            self._engine.attach(request.request_id, Lease(lease.address, lease.kind, lease.token))
        return target_pb2.AttachDrafterReply(attached=is_running)

    async def GetDcut(
        self, request: target_pb2.GetDcutRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> target_pb2.DcutReply:
        snapshot = await asyncio.wait_for(asyncio.wrap_future(self._engine.dcut()), _SNAPSHOT_TIMEOUT_S)
        return target_pb2.DcutReply(snapshot=encode_snapshot(snapshot))

    async def GetInfo(
        self, request: target_pb2.GetInfoRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> generation_pb2.ModelInfo:
        target = self._engine.target
        return generation_pb2.ModelInfo(
            name=self._model_name,
            max_context=self._engine.max_context,
            vocabulary=target.spec.vocabulary,
            precision=target.precision,
            exactness=target.verdict.exactness,
            device=str(target.device),
        )
