"""The state of a training run on disk: what a run needs to go on as if it had not stopped."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from services.training.batches import Cursor

_FILE = "state.pt"
_FOLDER = re.compile(r"step-(\d{8})$")
_KEPT = 2


@dataclass(frozen=True, slots=True)
class TrainState:
    """Weights and optimizer as state dicts, fp32; `average` is empty without a moving average."""

    step: int
    cursor: Cursor
    model: dict[str, torch.Tensor]
    average: dict[str, torch.Tensor]
    optimizers: list[dict[str, Any]]
    best: float
    smooth_loss: float
    lowest_loss: float
    num_tokens: int
    seconds: float
    curve: list[dict[str, float]]
    recipe: str  # JSON; a run goes on under its own recipe alone


def save_state(folder: Path, state: TrainState) -> None:
    """A folder of its own, whole or not at all; the two newest are kept."""
    final = folder / f"step-{state.step:08d}"
    scratch = final.with_suffix(".partial")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    fields = {name: getattr(state, name) for name in TrainState.__slots__}
    torch.save({**fields, "cursor": asdict(state.cursor)}, scratch / _FILE)
    shutil.rmtree(final, ignore_errors=True)
    os.replace(scratch, final)
    for old in _saved(folder)[:-_KEPT]:
        shutil.rmtree(old)


def load_newest_state(folder: Path) -> TrainState | None:
    saved = _saved(folder)
    if not saved:
        return None
    fields = torch.load(saved[-1] / _FILE, map_location="cpu", weights_only=True)
    return TrainState(**{**fields, "cursor": Cursor(**fields["cursor"])})


def _saved(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if _FOLDER.search(path.name))
