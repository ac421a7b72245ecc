"""What the handlers of the gRPC front door share: reading a request, telling an error."""

from __future__ import annotations

from typing import NoReturn, TypeVar

import grpc.aio
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from protos import generation_pb2 as pb
from services.gateway.errors import ApiError, ErrorKind
from services.gateway.metrics import GatewayMetrics
from services.models.tokenizer import Message as Turn

SERVICE = pb.DESCRIPTOR.services_by_name["Generation"].full_name
_CHAT_ROLES = ("system", "developer", "user", "assistant")

Context = grpc.aio.ServicerContext[bytes, Message]
_M = TypeVar("_M", bound=Message)


def parsed(data: bytes, kind: type[_M]) -> _M:
    """Raises ApiError for bytes that are no such message, or hold fields that this version does not know:
    leaving them out silently could change the answer."""
    try:
        message = kind.FromString(data)
    except DecodeError as error:
        name = kind.DESCRIPTOR.full_name
        raise ApiError(ErrorKind.MALFORMED, f"request: not a valid {name} message") from error
    unknown = _unknown_field(message)
    if unknown is not None:
        raise ApiError(
            ErrorKind.UNKNOWN_FIELD,
            f"{unknown}: unknown field; this server's protocol is {SERVICE.rpartition('.')[0]}",
            field=unknown,
        )
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


def _unknown_field(message: Message, path: str = "") -> str | None:
    for field in UnknownFieldSet(message):  # type: ignore[attr-defined]  # missing from its stub
        return f"{path}#{field.field_number}"
    for descriptor, value in message.ListFields():
        if descriptor.message_type is None or descriptor.message_type.GetOptions().map_entry:
            continue
        nested = value if descriptor.is_repeated else [value]
        for item in nested:
            found = _unknown_field(item, f"{path}{descriptor.name}.")
            if found is not None:
                return found
    return None
