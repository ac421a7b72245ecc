"""Where a checkpoint comes from."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_PACKAGES = ("draftfleet", "torch", "transformers", "numpy")


def provenance(recipe: dict[str, Any], data: Iterable[Path], **facts: Any) -> dict[str, Any]:
    """Revision, versions, machine type, recipe and data hash; no paths and no names of people or hosts."""
    return {
        "revision": revision(),
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "python": platform.python_version(),
        "machine": platform.machine(),
        "data": data_hash(data),
        "recipe": recipe,
        **facts,
    }


def data_hash(files: Iterable[Path]) -> str:
    """Of names, sizes and first megabytes: whole shards would take minutes to read."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(files):
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            digest.update(file.read(1 << 20))
    return digest.hexdigest()


def revision() -> str:
    """Of the checkout this file lies in, with a + where files differ from it; unknown for an installed package."""
    here = Path(__file__).parent
    try:
        revision = _git(here, "rev-parse", "HEAD")
        return revision + ("+" if _git(here, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(folder: Path, *command: str) -> str:
    result = subprocess.run(["git", *command], cwd=folder, capture_output=True, text=True, check=True)
    return result.stdout.strip()
