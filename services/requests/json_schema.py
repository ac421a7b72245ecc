"""Bounds of a JSON schema that an answer is to follow."""

from __future__ import annotations

import json
from typing import Any

MAX_SCHEMA_BYTES = 64 << 10
MAX_SCHEMA_DEPTH = 32
ANY_OBJECT = '{"type": "object"}'


def check_schema(text: str) -> None:
    """Whether it can be compiled is found out where that is done.

    Raises ValueError for what is no JSON object, is too long or is nested too deep.
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_SCHEMA_BYTES:
        raise ValueError(f"response_format: {size} bytes are too many; at most {MAX_SCHEMA_BYTES} are allowed")
    try:
        schema = json.loads(text)
    except RecursionError:
        raise ValueError(_too_deep()) from None
    except ValueError as error:
        raise ValueError(f"response_format: it must be valid JSON ({error})") from error
    if not isinstance(schema, dict):
        raise ValueError("response_format: it must be a JSON object")
    if _is_deeper(schema, MAX_SCHEMA_DEPTH):
        raise ValueError(_too_deep())


def _is_deeper(value: dict[str, Any], limit: int) -> bool:
    level: list[Any] = [value]
    for _ in range(limit):
        inner = [v for outer in level for v in (outer.values() if isinstance(outer, dict) else outer)]
        level = [v for v in inner if isinstance(v, dict | list)]
    return bool(level)


def _too_deep() -> str:
    return f"response_format: it is nested too deep; at most {MAX_SCHEMA_DEPTH} levels are allowed"
