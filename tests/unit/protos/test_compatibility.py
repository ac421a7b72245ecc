"""What was released once goes on being understood: no field goes, changes or has its number used again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from protos import generation_pb2
from tests.unit.protos.release import RELEASED, described, read

RELEASES = sorted(RELEASED.glob("*.txtpb"))


def broken(old: FileDescriptorProto, new: FileDescriptorProto) -> list[str]:
    """What of `old` does not hold in `new`."""
    messages = {message.name: message for message in new.message_type}
    enums = {enum.name: enum for enum in new.enum_type}
    services = {service.name: service for service in new.service}
    problems = []
    for message in old.message_type:
        if message.name in messages:
            problems += _broken_message(message, messages[message.name])
        else:
            problems.append(f"{message.name} is gone")
    for enum in old.enum_type:
        problems += _broken_enum(enum, enums.get(enum.name, EnumDescriptorProto()))
    for service in old.service:
        methods = {m.name: m for m in services[service.name].method} if service.name in services else {}
        problems += [f"{service.name}.{m.name} has changed" for m in service.method if methods.get(m.name) != m]
    return problems


def _broken_message(old: DescriptorProto, new: DescriptorProto) -> Iterator[str]:
    by_number = {field.number: field for field in new.field}
    reserved = {number for r in new.reserved_range for number in range(r.start, r.end)}
    for field in old.field:
        now = by_number.get(field.number)
        where = f"{old.name}.{field.name} = {field.number}"
        if now is None:
            if field.number not in reserved or field.name not in new.reserved_name:
                yield f"{where} is gone, and neither its number nor its name may be used again: reserve both"
        elif (now.name, now.type, now.label, now.type_name) != (field.name, field.type, field.label, field.type_name):
            yield f"{where} has changed"
        elif _oneof(old, field) != _oneof(new, now):
            yield f"{where} is in another oneof"
    nested = {message.name: message for message in new.nested_type}
    for message in old.nested_type:
        yield from _broken_message(message, nested.get(message.name, DescriptorProto(name=message.name)))


def _oneof(message: DescriptorProto, field: Any) -> str | None:
    return message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else None


def _broken_enum(old: EnumDescriptorProto, new: EnumDescriptorProto) -> Iterator[str]:
    values = {value.number: value.name for value in new.value}
    for value in old.value:
        if values.get(value.number) != value.name:
            yield f"{old.name}.{value.name} = {value.number} has changed"


def full(descriptor: Descriptor, variant: int) -> Message:
    """A message with every field set; of a oneof, the member that the variant says."""
    message = message_factory.GetMessageClass(descriptor)()
    for field in descriptor.fields:
        oneof = field.containing_oneof
        if oneof is None or oneof.fields[variant % len(oneof.fields)] is field:
            _fill(message, field, variant)
    return message


def _fill(message: Message, field: FieldDescriptor, variant: int) -> None:
    if field.message_type is None:
        value = _value(field)
        if field.is_repeated:
            getattr(message, field.name).extend([value, value])
        else:
            setattr(message, field.name, value)
    elif field.message_type.GetOptions().map_entry:
        entry = field.message_type.fields_by_name
        getattr(message, field.name)[_value(entry["key"])] = _value(entry["value"])
    elif field.is_repeated:
        getattr(message, field.name).append(full(field.message_type, variant))
    else:
        getattr(message, field.name).CopyFrom(full(field.message_type, variant))


def _value(field: FieldDescriptor) -> Any:
    if field.type == FieldDescriptor.TYPE_ENUM:
        return field.enum_type.values[-1].number
    values = {
        FieldDescriptor.CPPTYPE_STRING: b"x" if field.type == FieldDescriptor.TYPE_BYTES else "x",
        FieldDescriptor.CPPTYPE_BOOL: True,
        FieldDescriptor.CPPTYPE_FLOAT: 0.5,
        FieldDescriptor.CPPTYPE_DOUBLE: 0.5,
    }
    return values.get(field.cpp_type, field.number + 1)


@pytest.mark.parametrize("path", RELEASES, ids=lambda path: path.stem)
def test_released_fields_stay(path: Path) -> None:
    assert broken(read(path), described()) == []


@pytest.mark.parametrize("path", RELEASES, ids=lambda path: path.stem)
def test_messages_of_a_release_are_read_whole(path: Path) -> None:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(read(path))  # type: ignore[no-untyped-call]
    released = pool.FindFileByName("protos/generation.proto").message_types_by_name
    assert released
    for name, descriptor in released.items():
        now = getattr(generation_pb2, name)
        for variant in range(3):
            sent = full(descriptor, variant)
            read_now = now.FromString(sent.SerializeToString())
            assert not list(UnknownFieldSet(read_now)), name
            # And back: an old client reads the same in what a new server says.
            assert type(sent).FromString(read_now.SerializeToString()) == sent, name


def test_there_is_a_release_to_be_true_to() -> None:
    assert RELEASES


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("number: 1", "number: 9"),  # another number
        ("TYPE_UINT32", "TYPE_STRING"),  # another type
        ('name: "max_tokens"', 'name: "temperature"'),  # the number used again
        ('name: "MAX"', 'name: "MIN"'),  # an enum value
        ("server_streaming: true", "server_streaming: false"),
    ],
)
def test_a_change_would_be_seen(old: str, new: str) -> None:
    from google.protobuf import text_format

    text = (
        'message_type { name: "M" field { name: "max_tokens" number: 1 label: LABEL_OPTIONAL type: TYPE_UINT32 } } '
        'enum_type { name: "E" value { name: "MAX" number: 0 } } '
        'service { name: "S" method { name: "R" input_type: ".M" output_type: ".M" server_streaming: true } }'
    )
    released = text_format.Parse(text, FileDescriptorProto())
    assert broken(released, released) == []
    assert old in text
    assert len(broken(released, text_format.Parse(text.replace(old, new), FileDescriptorProto()))) == 1
