"""From what the user names to a local folder in transformers format."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from services.models import default
from services.models.cache import cache_root, exclusive
from services.models.gguf import CONVERTED, convert
from services.models.hub import fetch_from_hub
from services.models.progress import OnProgress, silent

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "*.tiktoken")
_PARTS = (
    (("config.json",), "config.json"),
    (("*.safetensors",), "weights as *.safetensors"),
    (_TOKENIZERS, "tokenizer, such as tokenizer.json"),
)


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A model on the local disk, in transformers format."""

    path: Path
    name: str  # that clients ask for


def resolve(target: str, cache_dir: Path | None = None, on_progress: OnProgress = silent) -> ModelFolder:
    """Fetches and converts `target` as needed: 'default', a folder, a .gguf file or a hub id.

    Raises ValueError when it is none of them, ModelUnavailableError when it cannot be had.
    """
    if target == "default":
        return ModelFolder(default.fetch_default(cache_dir, on_progress), default.NAME)
    path = Path(target).expanduser()
    if target and path.is_dir():
        check_folder(path)
        return ModelFolder(path.resolve(), path.resolve().name)
    if path.suffix == ".gguf" and path.is_file():
        return _from_gguf(path.resolve(), cache_dir, on_progress)
    if path.suffix != ".gguf" and _HUB_ID.fullmatch(target):
        folder = fetch_from_hub(target, on_progress)
        check_folder(folder)
        return ModelFolder(folder, target)
    raise ValueError(
        f"target: {target!r} is not there; it must be 'default', a folder in transformers format, "
        "a .gguf file, or a hub id of the form owner/name"
    )


def check_folder(folder: Path) -> None:
    """Raises ValueError when `folder` lacks a config, safetensors weights or a tokenizer."""
    for patterns, what in _PARTS:
        if not any(any(folder.glob(pattern)) for pattern in patterns):
            raise ValueError(f"target: {folder} is not a model folder in transformers format; it has no {what}")


def _from_gguf(path: Path, cache_dir: Path | None, on_progress: OnProgress) -> ModelFolder:
    # Size and time stand for the content: hashing many gigabytes at each start would cost minutes.
    stat = path.stat()
    key = hashlib.sha256(f"{path}|{stat.st_size}|{stat.st_mtime_ns}".encode()).hexdigest()[:16]
    parent = cache_root(cache_dir) / "models" / "gguf" / f"{path.stem}-{key}"
    folder = parent / CONVERTED
    if not folder.is_dir():
        with exclusive(parent, on_progress):
            if not folder.is_dir():
                convert(path, folder, on_progress)
    return ModelFolder(folder, path.stem)
