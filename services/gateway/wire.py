"""What the handlers of the gRPC front door share: reading a request, telling an error."""

from __future__ import annotations

from typing import NoReturn, TypeVar

import grpc.aio
from google.protobuf.message import DecodeError, Message

from protos import generation_pb2 as pb
from services.gateway.errors import ApiError, ErrorKind
from services.gateway.metrics import GatewayMetrics
from services.gateway.strictness import check
from services.models.tokenizer import Message as Turn

SERVICE = pb.DESCRIPTOR.services_by_name["Generation"].full_name
_CHAT_ROLES = ("system", "developer", "user", "assistant")

Context = grpc.aio.ServicerContext[bytes, Message]
_M = TypeVar("_M", bound=Message)


def parsed(data: bytes, kind: type[_M]) -> _M:
    """Raises ApiError for bytes that are no such message, or hold fields that this version does not know."""
    try:
        message = kind.FromString(data)
    except DecodeError as error:
        name = kind.DESCRIPTOR.full_name
        raise ApiError(ErrorKind.MALFORMED, f"request: not a valid {name} message") from error
    check(message)
    return message


def messages_of(chat: pb.Chat) -> list[Turn]:
    """Raises ApiError naming the field."""
    if not chat.messages:
        raise ApiError(ErrorKind.INVALID, "chat.messages: it must not be empty", field="chat.messages")
    for index, message in enumerate(chat.messages):
        if message.role not in _CHAT_ROLES:
            field = f"chat.messages[{index}].role"
            text = f"{field}: {message.role[:32]!r} is not known; it must be one of {', '.join(_CHAT_ROLES)}"
            raise ApiError(ErrorKind.INVALID, text, field=field)
    return [Turn(role=message.role, content=message.content) for message in chat.messages]


async def abort(context: Context, error: ApiError, metrics: GatewayMetrics) -> NoReturn:
    metrics.failed("grpc", error.kind)
    await context.abort(error.grpc_code, error.message, error.grpc_metadata())
    raise AssertionError("abort always raises")
