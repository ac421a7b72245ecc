"""Handlers of the public gRPC service that answer at once: the model, its tokens and the fleet."""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc
from google.protobuf.message import Message

from protos import generation_pb2 as pb
from services.gateway.errors import ApiError, ErrorKind
from services.gateway.fleet_view.replies import drafters_of, replicas_of
from services.gateway.gateway import Gateway
from services.gateway.wire import Context, abort, messages_of, parsed

logger = logging.getLogger(__name__)

_Q = TypeVar("_Q", bound=Message)
_A = TypeVar("_A", bound=Message)


class Inspection:
    """Belongs to the event loop of its gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def handlers(self) -> dict[str, grpc.RpcMethodHandler[bytes, Message]]:
        """By the name of the method."""
        return {
            "GetModel": self._unary(pb.GetModelRequest, self._get_model),
            "Tokenize": self._unary(pb.TokenizeRequest, self._tokenize),
            "Detokenize": self._unary(pb.DetokenizeRequest, self._detokenize),
            "ListDrafters": self._unary(pb.ListDraftersRequest, self._list_drafters),
            "GetStatus": self._unary(pb.GetStatusRequest, self._get_status),
        }

    async def _get_model(self, request: pb.GetModelRequest) -> pb.ModelInfo:
        self._gateway.check_model(request.model or "default")
        return await self._gateway.model_info()

    async def _tokenize(self, request: pb.TokenizeRequest) -> pb.TokenizeReply:
        self._gateway.check_model(request.model or "default")
        with self._gateway.admission.enter():
            kind = request.WhichOneof("input")
            if kind is None:
                raise ApiError(ErrorKind.INVALID, "input: one of text and chat is required", field="input")
            if kind == "chat":
                ids = await self._gateway.chat_ids(messages_of(request.chat), "chat.messages")
            else:
                add_special = request.add_special_tokens if request.HasField("add_special_tokens") else True
                ids = await self._gateway.text_ids(request.text, "text", add_special=add_special)
            return pb.TokenizeReply(
                ids=ids,
                max_context=(await self._gateway.targets.info()).max_context,
                pieces=await self._gateway.tokenization.pieces(ids) if request.pieces else (),
            )

    async def _detokenize(self, request: pb.DetokenizeRequest) -> pb.DetokenizeReply:
        self._gateway.check_model(request.model or "default")
        with self._gateway.admission.enter():
            return pb.DetokenizeReply(text=await self._gateway.text_of(request.ids, "ids"))

    async def _list_drafters(self, _: pb.ListDraftersRequest) -> pb.ListDraftersReply:
        return pb.ListDraftersReply(drafters=drafters_of(self._gateway.targets.members()))

    async def _get_status(self, _: pb.GetStatusRequest) -> pb.FleetStatus:
        gateway = self._gateway
        try:
            model = await gateway.model_info()
        except ApiError:
            model = None
        return pb.FleetStatus(
            model=model,
            replicas=replicas_of(gateway.targets.members()),
            gateway=pb.GatewayStatus(
                active_requests=gateway.admission.active,
                refused_requests=gateway.admission.refused,
                lost_attempts=gateway.targets.lost_attempts,
                failed_routes=gateway.targets.failed_routes,
                is_draining=gateway.admission.is_draining,
            ),
        )

    def _unary(self, kind: type[_Q], answer: Callable[[_Q], Awaitable[_A]]) -> grpc.RpcMethodHandler[bytes, Message]:
        """Takes bytes, so that a message that does not parse is the client's error and not ours."""

        @functools.wraps(answer)
        async def handle(data: bytes, context: Context) -> _A:
            try:
                return await answer(parsed(data, kind))
            except ApiError as error:
                await abort(context, error, self._gateway.metrics)
            except Exception:
                logger.exception("a request failed")
                await abort(context, ApiError(ErrorKind.INTERNAL, "internal error"), self._gateway.metrics)

        return grpc.unary_unary_rpc_method_handler(handle, response_serializer=lambda reply: reply.SerializeToString())
