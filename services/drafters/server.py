"""The gRPC server of one drafter replica."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import defaultdict

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio  # type: ignore[attr-defined]

from protos import drafting_pb2 as pb
from services.drafters.batcher import Batcher
from services.drafters.config import DrafterConfig
from services.drafters.drafter import Drafter
from services.drafters.intake import Intake, fault_entry
from services.drafters.metrics import DrafterMetrics
from services.drafters.rounds import Batch, Drafted
from services.drafters.sessions import SessionTable, TableFull
from services.drafters.streams import Context, TargetStream
from services.drafters.validation import MAX_PLACES, agree_protocol
from services.rpc.credential import Credential, interceptors_of
from services.rpc.ports import ANY_PORT, PortRange, bind

_log = logging.getLogger(__name__)
SERVICE = pb.DESCRIPTOR.services_by_name["Drafting"].full_name
_MAX_FAILURES_IN_A_ROW = 3
_DRAIN_POLL_S = 0.05

_ReserveContext = grpc.aio.ServicerContext[pb.ReserveRequest, pb.ReserveReply]


class DrafterServer:
    """Serves `draftfleet.drafting.v1.Drafting` and `grpc.health.v1.Health` for one drafter.

    Only callers that show the credential are served, where there is one. Create, start and stop it on one event loop.
    """

    def __init__(
        self, config: DrafterConfig, drafter: Drafter, replica: str, credential: Credential | None = None
    ) -> None:
        self._config = config
        self._credential = credential
        self._traits = drafter.traits
        self._replica = replica
        self.metrics = DrafterMetrics()
        self._table = SessionTable(config.sessions)
        self._intake = Intake(drafter.traits, self._table, self.metrics)
        self._batcher = Batcher(
            drafter,
            self._intake,
            self.metrics,
            self._deliver,
            window_s=config.batch_window_ms / 1e3,
            max_pending_bytes=config.wire.max_pending_bytes,
        )
        self._streams: dict[int, TargetStream] = {}
        self._numbers = itertools.count()
        self._health = health_aio.HealthServicer()
        self._server: grpc.aio.Server | None = None
        self.address = ""  # host:port once started

    @property
    def num_sessions(self) -> int:
        return len(self._table)

    @property
    def num_reserved(self) -> int:
        return self._table.reserved

    @property
    def num_pending_bytes(self) -> int:
        """Input that waits for the next batch."""
        return self._intake.pending.num_bytes

    async def start(self, host: str, ports: PortRange = ANY_PORT) -> str:
        """Binds and serves; returns host:port as targets dial it. Raises OSError when it cannot bind."""
        limit = self._config.wire.max_message_bytes
        server = grpc.aio.server(
            interceptors=interceptors_of(self._credential),
            options=(
                ("grpc.max_receive_message_length", limit),
                ("grpc.max_send_message_length", limit),
                ("grpc.so_reuseport", 0),
                ("grpc.http2.min_ping_interval_without_data_ms", 5000),
                ("grpc.keepalive_permit_without_calls", 1),
            ),
            maximum_concurrent_rpcs=self._config.wire.max_streams + 64,
        )
        methods = {
            "Reserve": grpc.unary_unary_rpc_method_handler(
                self._reserve,
                request_deserializer=pb.ReserveRequest.FromString,
                response_serializer=pb.ReserveReply.SerializeToString,
            ),
            "Rounds": grpc.stream_stream_rpc_method_handler(self._rounds),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        bound = bind(server, host, ports)
        self._batcher.start()
        await server.start()
        for service in ("", SERVICE):
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        self._server = server
        self.address = f"{host}:{bound}"
        return self.address

    async def drain(self) -> None:
        """Takes no new sessions, and gives the open ones `drain_s` to end."""
        self._intake.is_draining = True
        await self._health.enter_graceful_shutdown()
        loop = asyncio.get_running_loop()
        end = loop.time() + self._config.drain_s
        while self._table and loop.time() < end:  # noqa: ASYNC110 - whichever comes first
            await asyncio.sleep(_DRAIN_POLL_S)

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(grace=0)
            self._server = None
        await self._batcher.stop()

    def check(self) -> None:
        """Raises RuntimeError when this replica should be replaced."""
        if self._server is None or not self._batcher.is_running:
            raise RuntimeError("the drafter is not running")
        if self.metrics.failed_in_a_row >= _MAX_FAILURES_IN_A_ROW:
            raise RuntimeError(f"the drafter failed {self.metrics.failed_in_a_row} batches in a row")

    async def _reserve(self, request: pb.ReserveRequest, context: _ReserveContext) -> pb.ReserveReply:
        try:
            agree_protocol(request.protocol, request.protocol)
        except ValueError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        if not 1 <= request.sequences <= MAX_PLACES:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"sequences: {request.sequences} is out of range; it must be at least 1 and at most {MAX_PLACES}",
            )
        if self._intake.is_draining:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "this drafter is stopping")
        now = asyncio.get_running_loop().time()
        try:
            token = self._table.reserve(request.sequences, now)
        except TableFull:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "no place is left at this drafter")
        ttl_ms = int(self._config.sessions.lease_ttl_s * 1000)
        lease = pb.Lease(address=self.address, kind=self._traits.kind, token=token, ttl_ms=ttl_ms)
        return pb.ReserveReply(lease=lease)

    async def _rounds(self, _: object, context: Context) -> None:
        if len(self._streams) >= self._config.wire.max_streams:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many target replicas are connected")
        number = next(self._numbers)
        stream = TargetStream(
            number, self._replica, self._traits, self._intake, self._batcher, self._config.wire, self.metrics
        )
        self._streams[number] = stream
        self.metrics.streams += 1
        try:
            await stream.serve(context)
        finally:
            del self._streams[number]

    def _deliver(self, batch: Batch, drafted: Drafted) -> None:
        """Answers every ask of a batch: one reply a frame."""
        replies: defaultdict[tuple[int, int], list[pb.ReplyEntry]] = defaultdict(list)
        for ask, proposal in drafted.proposals:
            to = ask.reply_to
            draft = pb.Draft(tokens=proposal.tokens, probabilities=proposal.probabilities)
            replies[to.stream, to.frame].append(
                pb.ReplyEntry(sequence=to.sequence, epoch=to.epoch, base=to.base, draft=draft)
            )
        for ask in batch.shed:
            to = ask.reply_to
            self.metrics.faults[pb.FaultCode.Name(pb.FAULT_CODE_OVERLOADED)] += 1
            fault = fault_entry(to.sequence, to.epoch, to.base, pb.FAULT_CODE_OVERLOADED, "it was too late to draft")
            replies[to.stream, to.frame].append(fault)
        lost = set(drafted.lost)
        for ask in batch.asks:
            if ask.question.session in lost:
                to = ask.reply_to
                self.metrics.faults[pb.FaultCode.Name(pb.FAULT_CODE_UNKNOWN_SESSION)] += 1
                fault = fault_entry(
                    to.sequence, to.epoch, to.base, pb.FAULT_CODE_UNKNOWN_SESSION, "the drafter failed on it"
                )
                replies[to.stream, to.frame].append(fault)
        busy_us = int(drafted.busy_s * 1e6)
        for (number, frame), entries in replies.items():
            stream = self._streams.get(number)
            if stream is not None:
                stream.send(pb.RoundReply(frame=frame, entries=entries, busy_us=busy_us))
