"""The step times of this target on this machine: from the cache, or measured now."""

from __future__ import annotations

import hashlib
import importlib.metadata
import logging
import os
import time
from pathlib import Path

import torch

from services.dcut.costs.steps import StepCosts
from services.dcut.costs.store import Measured, stored_or_measured
from services.target.config import EngineConfig
from services.target.kernels.build import processor, sources_digest
from services.target.model.loader import LoadedTarget
from services.target.profile import profile_steps

log = logging.getLogger(__name__)


def step_table(target: LoadedTarget, folder: Path, config: EngineConfig, cache_dir: Path) -> StepCosts | None:
    """None where the settings do without."""
    if config.dcut.mode == "off" or not config.dcut.profile:
        return None

    def measure() -> Measured:
        started = time.perf_counter()
        measured = profile_steps(
            target, config.max_step_rows, config.max_sequences, config.kv_memory_mb, config.dcut.profile_budget_s
        )
        log.info("measured %d step times in %.1f s", len(measured.samples), time.perf_counter() - started)
        if not measured.is_complete:
            log.warning("this machine was too slow or too busy to measure all step times in the time allowed")
        return measured

    return stored_or_measured(cache_dir, _key(target, folder, config), measure)


def _key(target: LoadedTarget, folder: Path, config: EngineConfig) -> dict[str, str | int]:
    """Everything that step times depend on, as far as it can be named."""
    on_cpu = target.device.type == "cpu"
    return {
        "model": _shape_digest(folder),
        "precision": target.precision,
        "plan": f"{target.verdict.plan.pad}/{target.verdict.plan.tile}",
        "device": "cpu" if on_cpu else torch.cuda.get_device_name(target.device),
        "processor": hashlib.sha256(processor().encode()).hexdigest()[:16],
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads() if on_cpu else 0,
        "max_step_rows": config.max_step_rows,
        "max_sequences": config.max_sequences,
        "torch": torch.__version__,
        "draftfleet": importlib.metadata.version("draftfleet"),
        "kernels": sources_digest()[:16],
    }


def _shape_digest(folder: Path) -> str:
    """Of the configuration, and the size of the weights: what is in them does not change a step's time."""
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    digest.update(str(sum(file.stat().st_size for file in folder.glob("*.safetensors"))).encode())
    return digest.hexdigest()[:16]
