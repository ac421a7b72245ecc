"""What the cache holds."""

from __future__ import annotations

from pathlib import Path

from services.models import default
from services.models.cache import cache_root
from services.models.gguf import CONVERTED
from services.models.source import ModelFolder


def cached_models(cache_dir: Path | None = None) -> tuple[ModelFolder, ...]:
    """The ready models of the cache: the default one and converted GGUF files."""
    ready = default.cached_default(cache_dir)
    found = [] if ready is None else [ModelFolder(ready, default.NAME)]
    for folder in sorted((cache_root(cache_dir) / "models" / "gguf").glob(f"*/{CONVERTED}")):
        found.append(ModelFolder(folder, folder.parent.name.rsplit("-", 1)[0]))
    return tuple(found)
