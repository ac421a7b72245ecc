"""Keeps measured step times on the disk, for the next start with the same model on the same machine."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from services.dcut.costs.steps import StepCosts, StepSample

log = logging.getLogger(__name__)

_FORMAT = 1
_MAX_FILE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Measured:
    """Step times as measured."""

    samples: tuple[StepSample, ...]
    is_complete: bool  # False: the time for measuring was over before


def stored_or_measured(cache_dir: Path, key: Mapping[str, str | int], measure: Callable[[], Measured]) -> StepCosts:
    """The table of that key. `key` names everything that step times depend on, in words and numbers.

    One that is not complete serves until the next start, when the machine may be less busy.
    """
    path = cache_dir / "costs" / f"{_digest(key)}.json"
    found = _read(path, key)
    if found is not None:
        return found
    measured = measure()
    table = StepCosts(measured.samples)
    if measured.is_complete:
        _write(path, key, table)
    return table


def _digest(key: Mapping[str, str | int]) -> str:
    text = json.dumps({"format": _FORMAT, **key}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _read(path: Path, key: Mapping[str, str | int]) -> StepCosts | None:
    """None where nothing is stored, or nothing that can be used."""
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise ValueError(f"it is larger than {_MAX_FILE_BYTES} bytes")
        stored = json.loads(path.read_text())
        if stored["format"] != _FORMAT or stored["key"] != dict(key):
            raise ValueError("it belongs to something else")
        return StepCosts(StepSample(**sample) for sample in stored["samples"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("stored step times are not used, measuring anew: %s: %s", path, error)
        return None


def _write(path: Path, key: Mapping[str, str | int], table: StepCosts) -> None:
    """As a whole or not at all; a full disk costs the next start its time and nothing else."""
    text = json.dumps(
        {"format": _FORMAT, "key": dict(key), "samples": [asdict(sample) for sample in table.samples]}, indent=1
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".partial", delete=False) as file:
            file.write(text)
        os.replace(file.name, path)
    except OSError as error:
        log.warning("step times could not be stored: %s: %s", path, error)
