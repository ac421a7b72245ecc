"""Finds the drafter weights that come with this package for a target. Needs no torch."""

from __future__ import annotations

import json
import re
from pathlib import Path

from services.drafters.neural.fingerprint import fingerprint
from services.models import default

ROOT = Path(__file__).parents[1] / "weights"  # one folder a target, in it one a kind


def target_name(target: str) -> str:
    """What a target is called, from how the user names it: 'default', a folder, a .gguf file or a hub id."""
    if target == "default":
        return default.NAME
    path = Path(target).expanduser()
    return path.stem if path.suffix == ".gguf" else path.resolve().name


def shipped_weights(kind: str, name: str, folder: Path | None = None, root: Path = ROOT) -> Path | None:
    """The checkpoint folder of a kind for the target of that name, or with the same weights as `folder`.

    A name that goes on after a dash counts too: quantised copies are called so.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    mark = fingerprint(folder) if folder is not None else ""
    for checkpoint in sorted(root.glob(f"*/{kind}")):
        if not (checkpoint / "config.json").is_file():
            continue
        made_for = checkpoint.parent.name
        if slug == made_for or slug.startswith(f"{made_for}-") or (mark and _mark_of(checkpoint) == mark):
            return checkpoint
    return None


def _mark_of(checkpoint: Path) -> str:
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    return str(config.get("target_fingerprint", ""))
