"""What the bits of a target's logits depend on."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from pathlib import Path

import torch

from services.target.kernels.build import processor, sources_digest
from services.target.model.loader import LoadedTarget

_SAMPLE_BYTES = 1 << 20  # of each end of a weights file: enough to tell checkpoints apart, and read at once


def numerics_key(target: LoadedTarget, folder: Path) -> dict[str, str | int]:
    """In words and numbers: shape of the model, precision, hardware, threads, versions."""
    on_cpu = target.device.type == "cpu"
    return {
        "model": _shape_digest(folder),
        "precision": target.precision,
        "plan": f"{target.verdict.plan.pad}/{target.verdict.plan.tile}",
        "device": "cpu" if on_cpu else torch.cuda.get_device_name(target.device),
        "processor": hashlib.sha256(processor().encode()).hexdigest()[:16],
        "threads": torch.get_num_threads() if on_cpu else 0,
        "torch": torch.__version__,
        "draftfleet": importlib.metadata.version("draftfleet"),
        "kernels": sources_digest()[:16],
    }


def fingerprint(target: LoadedTarget, folder: Path) -> str:
    """Replicas with the same one compute the same bits, where they are bitwise at all."""
    digest = hashlib.sha256(json.dumps(numerics_key(target, folder), sort_keys=True).encode())
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as weights:
            digest.update(weights.read(_SAMPLE_BYTES))
            weights.seek(max(file.stat().st_size - _SAMPLE_BYTES, 0))
            digest.update(weights.read(_SAMPLE_BYTES))
    return digest.hexdigest()[:16]


def _shape_digest(folder: Path) -> str:
    """Of the configuration, and the size of the weights."""
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    digest.update(str(sum(file.stat().st_size for file in folder.glob("*.safetensors"))).encode())
    return digest.hexdigest()[:16]
