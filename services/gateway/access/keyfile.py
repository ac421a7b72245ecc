"""The file of API keys: read by gateways while `draftfleet keys` changes it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from filelock import FileLock
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from services.gateway.access.keys import KeyRecord

MAX_KEYS = 10_000
_MAX_BYTES = 16 << 20
_LOCK_TIMEOUT_S = 10.0


class KeyFile(BaseModel):
    """All keys that were ever made here, the revoked ones too."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1] = 1
    keys: tuple[KeyRecord, ...] = Field(default=(), max_length=MAX_KEYS)

    @model_validator(mode="after")
    def _ids_differ(self) -> KeyFile:
        if len({record.id for record in self.keys}) != len(self.keys):
            raise ValueError("two keys have the same id")
        return self


def load(path: Path) -> KeyFile:
    """Raises ValueError for a file that is no key file, without repeating any of it, and OSError."""
    with path.open("rb") as file:
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise ValueError(f"{path}: it is too large; at most {_MAX_BYTES} bytes are allowed")
    try:
        return KeyFile.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{path}: it is not a key file ({where}: {first['msg']})") from None


@contextmanager
def changing(path: Path) -> Iterator[list[KeyRecord]]:
    """The keys of the file, or none, to be changed in place; readers see all of the change or nothing.

    Raises ValueError as `load` does, and OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock", timeout=_LOCK_TIMEOUT_S, mode=0o600):
        keys = list(load(path).keys) if path.exists() else []
        yield keys
        _write(path, KeyFile(keys=tuple(keys)))


def _write(path: Path, content: KeyFile) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # for its owner only
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(content.model_dump_json(indent=1, exclude_none=True) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
