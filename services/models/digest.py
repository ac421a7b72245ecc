"""One number for the content of a model folder, to tell on every node whether it is the model that was meant."""

from __future__ import annotations

import hashlib
from pathlib import Path

from services.models.cache import sha256_of
from services.models.errors import ModelUnavailableError


def folder_digest(folder: Path) -> str:
    """SHA-256, in hexadecimal, of the names and contents of all files that do not begin with a dot."""
    lines = [
        f"{sha256_of(path)} {path.relative_to(folder).as_posix()}\n"
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def check_digest(folder: Path, expected: str) -> None:
    """Raises ModelUnavailableError when the folder holds anything else."""
    found = folder_digest(folder)
    if found != expected.lower():
        raise ModelUnavailableError(
            f"model.sha256: the content of {folder} is not the expected one (found {found}, expected {expected}). "
            "Remove the folder and fetch it again, or set the digest of the model that is meant."
        )
