"""Messages and tools of a chat, as chat templates take them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from services.gateway.errors import ApiError, ErrorKind
from services.gateway.openai.schema import Message, Tool
from services.models.tokenizer import Message as Turn

MAX_TOOLS = 128


def turns(messages: Sequence[Message]) -> list[Turn]:
    """Raises ApiError naming the field."""
    return [_turn(message, f"messages[{index}]") for index, message in enumerate(messages)]


def tools_of(tools: Sequence[Tool] | None, choice: str | None) -> list[dict[str, Any]]:
    """Those that the model is to know; none of them where it must not call one. Raises ApiError."""
    if len(tools or ()) > MAX_TOOLS:
        message = f"tools: {len(tools or ())} are too many; at most {MAX_TOOLS} are allowed"
        raise ApiError(ErrorKind.INVALID, message, field="tools")
    return [] if choice == "none" else [tool.model_dump(exclude_none=True) for tool in tools or ()]


def _turn(message: Message, where: str) -> Turn:
    calls = message.tool_calls or []
    if message.content is None and not calls:
        raise ApiError(ErrorKind.INVALID, f"{where}.content: this field is required", field=f"{where}.content")
    turn = Turn(role=message.role, content=message.text())
    if calls and message.role != "assistant":
        field = f"{where}.tool_calls"
        raise ApiError(ErrorKind.INVALID, f"{field}: only the assistant calls tools", field=field)
    if (message.role == "tool") != (message.tool_call_id is not None):
        field = f"{where}.tool_call_id"
        raise ApiError(ErrorKind.INVALID, f"{field}: it goes with the role 'tool', and only with it", field=field)
    if calls:
        turn["tool_calls"] = [
            {
                "id": call.id,
                "type": call.type,
                "function": {
                    "name": call.function.name,
                    "arguments": _arguments(call.function.arguments, f"{where}.tool_calls[{index}].function.arguments"),
                },
            }
            for index, call in enumerate(calls)
        ]
    if message.tool_call_id is not None:
        turn["tool_call_id"] = message.tool_call_id
    return turn


def _arguments(text: str, field: str) -> Any:
    """Clients send them as JSON in a string; templates write the values."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ApiError(ErrorKind.INVALID, f"{field}: it must be JSON", field=field) from error
