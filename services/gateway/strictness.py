"""Messages that hold what this version does not know, or too much of what it does."""

from __future__ import annotations

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from services.gateway.errors import ApiError, ErrorKind

# A message of two bytes becomes an object that takes a microsecond to look at: so these are counted beforehand.
MAX_REPEATED = 4096
_MAX_NAMED_BYTES = 4096  # of unknown fields, among which the first is looked for


def check(message: Message) -> None:
    """Raises ApiError for unknown fields, since leaving them out silently could change the answer."""
    crowded = _crowded_field(message)
    if crowded is not None:
        raise ApiError(
            ErrorKind.INVALID, f"{crowded}: too many entries; at most {MAX_REPEATED} are allowed", field=crowded
        )
    known = type(message)()
    known.CopyFrom(message)
    known.DiscardUnknownFields()
    size = message.ByteSize() - known.ByteSize()
    if size == 0:
        return
    field = (_unknown_field(message) if size <= _MAX_NAMED_BYTES else None) or "request"
    package = message.DESCRIPTOR.file.package
    raise ApiError(ErrorKind.UNKNOWN_FIELD, f"{field}: unknown field; this server's protocol is {package}", field=field)


def _crowded_field(message: Message, path: str = "") -> str | None:
    for descriptor, value in message.ListFields():
        if descriptor.message_type is None or descriptor.message_type.GetOptions().map_entry:
            continue
        name = f"{path}{descriptor.name}"
        if descriptor.is_repeated:
            if len(value) > MAX_REPEATED:
                return name
            nested = list(value)
        else:
            nested = [value]
        for item in nested:
            found = _crowded_field(item, f"{name}.")
            if found is not None:
                return found
    return None


def _unknown_field(message: Message, path: str = "") -> str | None:
    for field in UnknownFieldSet(message):  # type: ignore[attr-defined]  # missing from its stub
        return f"{path}#{field.field_number}"
    for descriptor, value in message.ListFields():
        if descriptor.message_type is None or descriptor.message_type.GetOptions().map_entry:
            continue
        for item in value if descriptor.is_repeated else [value]:
            found = _unknown_field(item, f"{path}{descriptor.name}.")
            if found is not None:
                return found
    return None
