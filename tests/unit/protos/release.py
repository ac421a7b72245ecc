"""Notes the public API as released: python -m tests.unit.protos.release, once for each version of the package."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from protos import generation_pb2

RELEASED = Path(__file__).with_name("released")


def described() -> FileDescriptorProto:
    """The API as it is now."""
    description = FileDescriptorProto()
    generation_pb2.DESCRIPTOR.CopyToProto(description)
    return description


def read(path: Path) -> FileDescriptorProto:
    return text_format.Parse(path.read_text(), FileDescriptorProto())


if __name__ == "__main__":
    path = RELEASED / f"generation-{version('draftfleet')}.txtpb"
    path.write_text(text_format.MessageToString(described()))
