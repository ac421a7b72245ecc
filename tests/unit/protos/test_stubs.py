"""The committed stubs are what the .proto files generate."""

from __future__ import annotations

from pathlib import Path

from protos.generate import PROTOS, generate


def test_committed_stubs_are_fresh(tmp_path: Path) -> None:
    generate(tmp_path)
    fresh = {path.name: path.read_text() for path in (tmp_path / "protos").iterdir()}
    committed = {path.name: path.read_text() for path in PROTOS.glob("*_pb2*.py*")}
    assert fresh.keys() == committed.keys(), "run `make protos`"
    stale = sorted(name for name in fresh if fresh[name] != committed[name])
    assert not stale, "run `make protos`"


def test_every_proto_has_stubs_with_types() -> None:
    for proto in PROTOS.glob("*.proto"):
        for suffix in ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py", "_pb2_grpc.pyi"):
            assert proto.with_name(proto.stem + suffix).is_file(), f"{proto.stem}{suffix} is missing; run `make protos`"
