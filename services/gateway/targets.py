"""The gateway's side of the target replicas: which one, and what when it fails."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from protos import drafting_pb2, generation_pb2, target_pb2
from protos.target_pb2_grpc import TargetStub
from services.dcut.local.messages import decode_snapshot
from services.dcut.messages import Budget, Member
from services.gateway.config import GatewayConfig
from services.gateway.errors import ApiError, ErrorKind
from services.gateway.resume import ResumeRecord
from services.requests.codec import sampling_to_proto, speculation_to_proto
from services.requests.sampling import SamplingParams
from services.requests.speculation import Speculation
from services.requests.task import UNKNOWN_TASK, Task
from services.router.messages import RouteReply, RouteRequest
from services.router.policy import choose_target
from services.rpc.channels import ChannelPool, Unreachable
from services.rpc.credential import Credential

if TYPE_CHECKING:
    from protos.target_pb2_grpc import TargetAsyncStub

logger = logging.getLogger(__name__)

Route = Callable[[RouteRequest], Awaitable[RouteReply]]

_ATTACH_ATTEMPTS = 3
_ATTACH_PAUSE_S = 0.02
_LOOK_AGAIN_S = 0.05
_TIES = "ties"  # replicas that compute differently may disagree where two tokens are as likely
_MAX_TOLD = 8  # target replicas whose costs one look shows
_CLIENT_MISTAKES = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE)
_REPLICA_FAULTS = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL, grpc.StatusCode.CANCELLED)


@dataclass(frozen=True, slots=True)
class TargetCall:
    """One generation as a target takes it. The seed and max_tokens are always set."""

    prompt_ids: Sequence[int]
    sampling: SamplingParams
    speculation: Speculation
    timeout_s: float
    task: Task = UNKNOWN_TASK
    names: Mapping[str, str] = field(default_factory=dict)  # of the sampling fields, as the client knows them
    tenant: str = ""
    received: Mapping[int, Sequence[int]] = field(default_factory=dict)  # tokens that the client has, by choice


class _Lost(Exception):
    """This replica did not serve the call; another one may."""

    def __init__(self, reason: str, *, is_full: bool = False) -> None:
        super().__init__(reason)
        self.is_full = is_full


class TargetPool:
    """Belongs to one event loop. `budget` gives the last known good one of the D-cut actor;
    without `route` targets choose drafters for themselves.
    """

    def __init__(
        self,
        config: GatewayConfig,
        budget: Callable[[], Budget],
        route: Route | None,
        clock: Callable[[], float] = time.monotonic,
        credential: Credential | None = None,
    ) -> None:
        self._config = config
        self._budget = budget
        self._route = route
        self._clock = clock
        self._channels = ChannelPool(config.channels, credential)
        self._in_flight: Counter[str] = Counter()  # sequences by replica
        self._suspects: dict[str, float] = {}  # replica: until when it is avoided
        self._infos: dict[str, generation_pb2.ModelInfo] = {}
        self.lost_attempts = 0
        self.resumes = 0  # answers that went on at another replica
        self.retries = 0
        self.failed_routes = 0

    def targets(self) -> list[Member]:
        return [m for m in self.members() if m.role == "target" and m.address]

    def drafter_kinds(self) -> set[str]:
        return {m.kind for m in self.members() if m.role == "drafter"}

    def members(self) -> Sequence[Member]:
        return self._budget().members

    def fleet(self) -> dict[str, Any]:
        """What the D-cut actor last said of drafter kinds and classes."""
        budget = self._budget()
        return {
            "version": budget.version,
            "kinds": [asdict(kind) for kind in budget.kinds],
            "guidance": [asdict(entry) for entry in budget.guidance],
        }

    async def generate(self, call: TargetCall) -> AsyncGenerator[generation_pb2.GenerateChunk, None]:
        """Chunks of all choices. Closing the iterator cancels the generation.

        Raises ApiError. A replica that is lost is replaced: by another one, or, once a chunk is out, by
        one that comes up within `resume_wait_s`. The answer goes on where it was.
        """
        deadline = self._clock() + call.timeout_s
        record = ResumeRecord.after(call.sampling.n, call.received)
        numerics: set[str] = set()
        tried: set[str] = set()
        last: _Lost | None = None
        while len(tried) < self._config.target_attempts:
            await self._channels.keep_only({m.address for m in self.targets()})
            member = await self._next(call, tried, deadline, is_resuming=record.has_begun)
            if member is None:
                break
            self.retries += bool(tried)
            tried.add(member.replica)
            self.resumes += record.has_begun
            try:
                async with aclosing(self._attempt(member, call, deadline, record)) as chunks:
                    async for chunk in chunks:
                        numerics.add(member.numerics)
                        if chunk.finish_reason and len(numerics) > 1:
                            chunk.speculation.exactness = _TIES
                        record.note(chunk)
                        yield chunk
                return
            except _Lost as loss:
                if record.has_begun and not record.unfinished:
                    return  # the client has everything
                self.lost_attempts += 1
                logger.warning("target %s did not serve a request to its end: %s", member.replica, loss)
                last = loss
        if record.has_begun:
            raise self._unavailable("the target replica was lost while it answered, and no other could go on")
        raise self._given_up(last)

    async def info(self) -> generation_pb2.ModelInfo:
        """What a live target said about itself, at any time. Raises ApiError when none can be asked."""
        for member in self.targets():
            known = self._infos.get(member.replica)
            if known is not None:
                return known
        return await self.probe()

    async def probe(self) -> generation_pb2.ModelInfo:
        """Asks a target now. Raises ApiError when none answers."""
        members = sorted(self.targets(), key=lambda m: self._is_suspect(m.replica))
        for member in members[: self._config.target_attempts]:
            try:
                async with self._channels.use(member.address) as channel:
                    info = await TargetStub(channel).GetInfo(
                        target_pb2.GetInfoRequest(),
                        timeout=self._config.info_timeout_s,
                        metadata=self._channels.metadata,
                    )
            except (Unreachable, grpc.aio.AioRpcError) as error:
                self._suspect(member.replica)
                logger.debug("target %s does not answer: %s", member.replica, _reason(error))
                continue
            self._infos = {m.replica: self._infos[m.replica] for m in members if m.replica in self._infos}
            self._infos[member.replica] = info
            self._suspects.pop(member.replica, None)
            return info
        raise self._unavailable("no target replica is available")

    async def dcut(self) -> list[dict[str, Any]]:
        """Costs and decisions of target replicas, as each tells them now; at most a few, those that answer."""
        told = await asyncio.gather(*(self._dcut_of(member) for member in self.targets()[:_MAX_TOLD]))
        return [snapshot for snapshot in told if snapshot is not None]

    async def _dcut_of(self, member: Member) -> dict[str, Any] | None:
        try:
            async with self._channels.use(member.address) as channel:
                reply = await TargetStub(channel).GetDcut(
                    target_pb2.GetDcutRequest(),
                    timeout=self._config.info_timeout_s,
                    metadata=self._channels.metadata,
                )
            return {"replica": member.replica, **decode_snapshot(reply.snapshot)}
        except (Unreachable, grpc.aio.AioRpcError, ValueError) as error:
            logger.debug("target %s does not tell its costs: %s", member.replica, _reason(error))
            return None

    async def close(self) -> None:
        await self._channels.close()

    async def _attempt(
        self, member: Member, call: TargetCall, deadline: float, record: ResumeRecord
    ) -> AsyncGenerator[generation_pb2.GenerateChunk, None]:
        self._in_flight[member.replica] += call.sampling.n  # before anything is awaited: others choose meanwhile
        try:
            async with (
                self._channels.use(member.address) as channel,
                aclosing(self._stream(TargetStub(channel), member, call, deadline, record)) as chunks,
            ):
                async for chunk in chunks:
                    yield chunk
        except Unreachable as error:
            self._suspect(member.replica)
            raise _Lost(str(error)) from error
        finally:
            self._in_flight[member.replica] -= call.sampling.n
            if not self._in_flight[member.replica]:
                del self._in_flight[member.replica]

    async def _stream(
        self, stub: TargetAsyncStub, member: Member, call: TargetCall, deadline: float, record: ResumeRecord
    ) -> AsyncGenerator[generation_pb2.GenerateChunk, None]:
        request = target_pb2.TargetRequest(
            request_id=uuid.uuid4().hex,  # the client's own need not be unique
            prompt_ids=call.prompt_ids,
            sampling=sampling_to_proto(call.sampling),
            speculation=speculation_to_proto(call.speculation),
            task_class=call.task.kind,
            class_confidence=call.task.confidence,
            progress=record.progress(),
            tenant=call.tenant,
        )
        unfinished = set(record.unfinished)
        rpc = stub.Generate(request, timeout=max(deadline - self._clock(), 0.001), metadata=self._channels.metadata)
        attaching = self._start_attaching(stub, member, request.request_id, call)
        try:
            async for chunk in rpc:
                if chunk.finish_reason == generation_pb2.FINISH_REASON_ABORT:
                    raise _Lost("it aborted the request")
                if chunk.finish_reason != generation_pb2.FINISH_REASON_UNSPECIFIED:
                    unfinished.discard(chunk.choice)
                yield chunk
            if unfinished:
                raise _Lost("it ended the stream before every choice was finished")
        except grpc.aio.AioRpcError as error:
            raise self._explained(member, call, error) from error
        finally:
            rpc.cancel()
            if attaching is not None:
                attaching.cancel()

    def _explained(self, member: Member, call: TargetCall, error: grpc.aio.AioRpcError) -> Exception:
        code, details = error.code(), error.details() or ""
        if code in _CLIENT_MISTAKES:
            return ApiError.of_value(ValueError(details), call.names)
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            return ApiError(ErrorKind.DEADLINE, "the request did not end within its deadline")
        if code == grpc.StatusCode.ABORTED:
            return ApiError(ErrorKind.SLOW_READER, details)
        if code in _REPLICA_FAULTS:
            self._suspect(member.replica)
        return _Lost(_reason(error), is_full=code == grpc.StatusCode.RESOURCE_EXHAUSTED)

    # Choosing a replica.

    async def _next(self, call: TargetCall, tried: set[str], deadline: float, *, is_resuming: bool) -> Member | None:
        """A replica to go on with. An answer that has begun is worth waiting for one."""
        until = min(self._clock() + self._config.resume_wait_s, deadline) if is_resuming else self._clock()
        while True:
            member = self._choose(call, tried)
            if member is not None or self._clock() >= until:
                return member
            await asyncio.sleep(_LOOK_AGAIN_S)

    def _choose(self, call: TargetCall, tried: set[str]) -> Member | None:
        members = self.targets()
        key = uuid.uuid4().hex

        def choose(avoid: set[str]) -> Member | None:
            return choose_target(key, members, in_flight=self._in_flight, avoid=avoid, sequences=call.sampling.n)

        suspects = {m.replica for m in members if self._is_suspect(m.replica)}
        return choose(tried | suspects) or choose(tried)

    def _given_up(self, last: _Lost | None) -> ApiError:
        if last is None:
            return self._unavailable("no target replica is available")
        if last.is_full:
            return ApiError(
                ErrorKind.OVERLOADED,
                "every target replica is full; try again later",
                retry_after_s=self._config.retry_after_s,
            )
        return self._unavailable("no target replica could serve the request")

    def _unavailable(self, message: str) -> ApiError:
        return ApiError(ErrorKind.UNAVAILABLE, message, retry_after_s=self._config.retry_after_s)

    def _suspect(self, replica: str) -> None:
        self._suspects[replica] = self._clock() + self._config.suspect_s

    def _is_suspect(self, replica: str) -> bool:
        until = self._suspects.get(replica)
        if until is not None and until <= self._clock():
            del self._suspects[replica]
            return False
        return until is not None

    # Finding it a drafter, beside the prefill.

    def _start_attaching(
        self, stub: TargetAsyncStub, member: Member, request_id: str, call: TargetCall
    ) -> asyncio.Task[None] | None:
        if self._route is None or call.speculation.is_off:
            return None
        request = RouteRequest(request_id, member.replica, call.speculation.drafter, call.sampling.n, call.task)
        return asyncio.create_task(self._attach(self._route, stub, request))

    async def _attach(self, route: Route, stub: TargetAsyncStub, request: RouteRequest) -> None:
        """Whatever goes wrong here costs speed only."""
        try:
            reply = await asyncio.wait_for(route(request), self._config.route_timeout_s)
            if not reply.lease:
                return
            attach = target_pb2.AttachDrafterRequest(
                request_id=request.request_id, lease=drafting_pb2.Lease.FromString(reply.lease)
            )
            for attempt in range(_ATTACH_ATTEMPTS):
                answer = await stub.AttachDrafter(
                    attach, timeout=self._config.attach_timeout_s, metadata=self._channels.metadata
                )
                if answer.attached:
                    return
                # Either the request has ended, which cancels this task, or it has not begun yet.
                await asyncio.sleep(_ATTACH_PAUSE_S * (attempt + 1))
        except Exception as error:  # the router's handle raises errors of many kinds
            self.failed_routes += 1
            logger.warning("no drafter for a request at target %s: %s", request.target, _reason(error))


def _reason(error: BaseException) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return f"{type(error).__name__}: {error}"
