"""The gRPC front door: draftfleet.v1.Generation, health and reflection."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing

import grpc
import grpc.aio
from google.protobuf.message import Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from protos import generation_pb2 as pb
from services.gateway.access.grpc_guard import GuardInterceptor
from services.gateway.access.tls import Certificates
from services.gateway.errors import ApiError, ErrorKind
from services.gateway.gateway import Gateway, Job, Prompt, sampling_names
from services.gateway.inspection import Inspection
from services.gateway.wire import SERVICE, Context, abort, messages_of, parsed
from services.requests.codec import sampling_from_proto, speculation_from_proto

logger = logging.getLogger(__name__)

_MAX_REQUEST_ID = 128
_SAMPLING_NAMES = sampling_names("sampling.")
_SPECULATION_NAMES = {name: f"speculation.{name}" for name in ("drafter", "max_draft_tokens")}
_PROMPT_FIELDS = {"text": "text", "token_ids": "token_ids.ids", "chat": "chat.messages"}


class Generation:
    """Handlers of the public service. Requests arrive as bytes, so that a message
    that does not parse is the client's error and not ours."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._inspection = Inspection(gateway)

    def handler(self) -> grpc.GenericRpcHandler[bytes, Message]:
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Generate": grpc.unary_stream_rpc_method_handler(
                    self.generate, response_serializer=pb.GenerateChunk.SerializeToString
                ),
                **self._inspection.handlers(),
            },
        )

    async def generate(self, data: bytes, context: Context) -> AsyncIterator[pb.GenerateChunk]:
        try:
            with self._gateway.admission.enter():
                job = await self._job(parsed(data, pb.GenerateRequest), context.time_remaining())
                async with aclosing(self._gateway.run(job)) as chunks:
                    async for chunk in chunks:
                        yield chunk
        except ApiError as error:
            await abort(context, error, self._gateway.metrics)
        except Exception:
            logger.exception("a request failed")
            await abort(context, ApiError(ErrorKind.INTERNAL, "internal error"), self._gateway.metrics)

    async def _job(self, request: pb.GenerateRequest, time_remaining: float | None) -> Job:
        if len(request.request_id) > _MAX_REQUEST_ID:
            message = f"request_id: it is too long; at most {_MAX_REQUEST_ID} characters are allowed"
            raise ApiError(ErrorKind.INVALID, message, field="request_id")
        if not request.model:
            raise ApiError(ErrorKind.INVALID, "model: this field is required", field="model")
        self._gateway.check_model(request.model)
        try:
            sampling = sampling_from_proto(request.sampling)
        except ValueError as error:
            raise ApiError.of_value(error, _SAMPLING_NAMES) from error
        try:
            speculation = speculation_from_proto(request.speculation)
        except ValueError as error:
            raise ApiError.of_value(error, _SPECULATION_NAMES) from error
        prompt = request.WhichOneof("prompt")
        if prompt is None:
            raise ApiError(ErrorKind.INVALID, "prompt: one of text, token_ids and chat is required", field="prompt")
        return await self._gateway.job(
            request.request_id or f"gen-{uuid.uuid4().hex}",
            await self._prompt(request),
            sampling,
            speculation,
            prompt_field=_PROMPT_FIELDS[prompt],
            sampling_prefix="sampling.",
            timeout_s=time_remaining,
            received=_received(request),
        )

    async def _prompt(self, request: pb.GenerateRequest) -> Prompt:
        prompt = request.WhichOneof("prompt")
        if prompt == "token_ids":
            return Prompt(tuple(request.token_ids.ids))
        if prompt == "text":
            if not request.text:
                raise ApiError(ErrorKind.INVALID, "text: it must not be empty", field="text")
            return await self._gateway.text_prompt(request.text, "text")
        return await self._gateway.chat_prompt(messages_of(request.chat), "chat.messages")


def _received(request: pb.GenerateRequest) -> dict[int, tuple[int, ...]]:
    """By choice. Raises ApiError for a choice that is named twice."""
    received: dict[int, tuple[int, ...]] = {}
    for part in request.resume:
        if part.choice in received:
            message = f"resume: choice {part.choice} is named twice; each may be named once"
            raise ApiError(ErrorKind.INVALID, message, field="resume")
        received[part.choice] = tuple(part.token_ids)
    return received


class FrontDoor:
    """The server. Health is SERVING only while a target answers."""

    def __init__(self, gateway: Gateway) -> None:
        config = gateway.config
        self._gateway = gateway
        self._server = grpc.aio.server(
            interceptors=[GuardInterceptor(gateway.guard, gateway.metrics)],
            options=[
                ("grpc.max_receive_message_length", config.max_body_bytes),
                ("grpc.max_send_message_length", config.channels.max_message_bytes),
                ("grpc.max_metadata_size", config.max_header_bytes),
                ("grpc.absolute_max_metadata_size", config.max_header_bytes),
                ("grpc.keepalive_time_ms", round(config.keepalive_s * 1000)),
                ("grpc.keepalive_timeout_ms", round(config.keepalive_timeout_s * 1000)),
                ("grpc.http2.min_ping_interval_without_data_ms", round(config.min_client_ping_s * 1000)),
                ("grpc.keepalive_permit_without_calls", 1),
                # Two servers on one port would share its calls without anybody noticing.
                ("grpc.so_reuseport", 0),
            ],
        )
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # missing from its stub
        self._server.add_generic_rpc_handlers((Generation(gateway).handler(),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        if config.access.reflection:
            reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """The bound port. Raises OSError when it cannot be had, and ValueError for certificates that cannot."""
        config = self._gateway.config
        address = f"{config.host}:{config.grpc_port}"
        secure = Certificates(config.tls).credentials() if config.tls.is_on else None
        try:
            if secure is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, secure)
        except RuntimeError as error:
            raise OSError(f"grpc_port: cannot listen on {address}; choose a free one ({error})") from error
        await self._set_health(False)
        await self._server.start()
        self._watching = asyncio.create_task(self._watch_health())
        return port

    async def stop(self) -> None:
        """Refuses new requests at once, and gives running ones the time to end."""
        self._gateway.admission.is_draining = True
        if self._watching is not None:
            self._watching.cancel()
        await self._health.enter_graceful_shutdown()
        await self._server.stop(self._gateway.config.drain_timeout_s)

    async def _watch_health(self) -> None:
        was_ready = False
        while True:
            is_ready = await self._gateway.is_ready()
            if is_ready != was_ready:
                await self._set_health(is_ready)
                was_ready = is_ready
            await asyncio.sleep(self._gateway.config.health_period_s)

    async def _set_health(self, is_ready: bool) -> None:
        status = health_pb2.HealthCheckResponse
        for service in ("", SERVICE):
            await self._health.set(service, status.SERVING if is_ready else status.NOT_SERVING)
