"""The step times of this target on this machine: from the cache, or measured now."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

from services.dcut.costs.steps import StepCosts
from services.dcut.costs.store import Measured, stored_or_measured
from services.target.config import EngineConfig
from services.target.model.loader import LoadedTarget
from services.target.numerics import numerics_key
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
    """Everything that step times depend on, as far as it can be named. What is in the weights does not count."""
    return {
        **numerics_key(target, folder),
        "cores": len(os.sched_getaffinity(0)),
        "max_step_rows": config.max_step_rows,
        "max_sequences": config.max_sequences,
    }
