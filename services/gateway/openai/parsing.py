"""From the bytes of a body to a request of OpenAI's shape, or an error that names the field."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args

import pydantic_core
from pydantic import BaseModel, ValidationError

from services.gateway.errors import ApiError, ErrorKind

_MAX_NAME = 64
_MAX_KEYS = 1024  # of one object; as many as logit_bias may have
_T = TypeVar("_T", bound=BaseModel)


def parse(body: bytes, shape: type[_T]) -> _T:
    """Raises ApiError for anything but UTF-8 JSON of the shape."""
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ApiError(ErrorKind.MALFORMED, f"body: not valid UTF-8 (byte {error.start})", field="body") from error
    try:
        content = pydantic_core.from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(ErrorKind.MALFORMED, f"body: not valid JSON ({error})", field="body") from error
    if not isinstance(content, dict):
        raise ApiError(ErrorKind.MALFORMED, "body: it must be a JSON object", field="body")
    if _is_crowded(content):
        message = f"body: an object in it has too many keys; at most {_MAX_KEYS} are allowed"
        raise ApiError(ErrorKind.MALFORMED, message, field="body")
    try:
        return shape.model_validate(content)
    except ValidationError as error:
        raise _explained(error, shape) from None


def _is_crowded(content: Any) -> bool:
    """Whether an object has so many keys that complaining about each would take seconds."""
    left = [content]
    while left:
        item = left.pop()
        if isinstance(item, dict):
            if len(item) > _MAX_KEYS:
                return True
            left += item.values()
        elif isinstance(item, list):
            left += [entry for entry in item if isinstance(entry, (dict, list))]
    return False


def _explained(error: ValidationError, shape: type[BaseModel]) -> ApiError:
    """One error for the client. Values are never repeated: they may be prompt text."""
    problems = error.errors(include_url=False, include_input=False, include_context=True)
    unknown = [p for p in problems if p["type"] == "extra_forbidden"]
    if unknown:
        *parents, name = unknown[0]["loc"]
        shown = str(name)[:_MAX_NAME]
        field = ".".join(part for part in (dotted(parents), shown) if part)
        hint = _hint(shown, _fields_at(shape, parents))
        return ApiError(ErrorKind.UNKNOWN_FIELD, f"{field}: unknown field; {hint}", field=field)
    # A union reports one problem for each member it is not: the deepest is the closest to what was meant.
    first = max(problems, key=lambda p: _specificity(p["loc"]))
    field = dotted(first["loc"])
    if first["type"] == "missing":
        return ApiError(ErrorKind.INVALID, f"{field}: this field is required", field=field)
    top = str(first["loc"][0])
    if first["type"] in _TYPE_PROBLEMS and top in _EXPECTED:
        return ApiError(ErrorKind.INVALID, f"{top}: it must be {_EXPECTED[top]}", field=top)
    return ApiError(ErrorKind.INVALID, f"{field}: {_lower_first(first['msg'])}", field=field)


_EXPECTED: Mapping[str, str] = {
    "prompt": "a string, a list of strings, a list of token ids, or a list of lists of token ids",
    "stop": "a string or a list of strings",
}
_TYPE_PROBLEMS = frozenset({"string_type", "list_type", "int_type", "float_type"})


def dotted(path: Sequence[int | str]) -> str:
    """messages, 0, content -> messages[0].content. Tags that pydantic adds for unions are left out."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif not _is_tag(part):
            text += f".{part}" if text else part
    return text


def _specificity(path: Sequence[int | str]) -> int:
    return sum(1 for part in path if isinstance(part, int) or not _is_tag(part))


def _is_tag(part: str) -> bool:
    return part in ("str", "int", "[key]") or "[" in part


def _fields_at(shape: type[BaseModel], path: Sequence[int | str]) -> list[str]:
    current = shape
    for part in path:
        if isinstance(part, str) and part in current.model_fields:
            inner = _model_in(current.model_fields[part].annotation)
            if inner is not None:
                current = inner
    return list(current.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        found = _model_in(argument)
        if found is not None:
            return found
    return None


def _hint(name: str, known: list[str]) -> str:
    nearest = difflib.get_close_matches(name, known, n=1)
    if nearest:
        return f"did you mean {nearest[0]!r}?"
    return f"known fields are {', '.join(sorted(known))}"


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
