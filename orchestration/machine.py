"""Fits settings that were left open to the machine that runs everything."""

from __future__ import annotations

import importlib.util
import math
import os
import shutil
from collections import Counter
from dataclasses import dataclass

from orchestration.config import FleetConfig, Placement
from services.drafters.config import DrafterConfig


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def has_nvidia_gpu() -> bool:
    """Whether torch can use a GPU; asks only where a driver is installed, since importing torch takes seconds."""
    if shutil.which("nvidia-smi") is None or importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


def fit(config: FleetConfig, cores: int, has_gpu: bool) -> FleetConfig:
    """Gives the target what the user left open: all cores as threads, and a GPU where there is one."""
    engine, target = config.engine, config.placement.target
    on_gpu = has_gpu and engine.device != "cpu"
    if engine.threads == 0:
        engine = engine.model_copy(update={"threads": max(1, cores // target.replicas)})
    if on_gpu and target.num_gpus == 0:
        target = target.model_copy(update={"num_gpus": 1.0 / target.replicas})
    placement = config.placement.model_copy(update={"target": target})
    return config.model_copy(update={"engine": engine, "placement": placement})


@dataclass(frozen=True, slots=True)
class Wanted:
    """What all replicas together want of Ray."""

    num_cpus: int
    resources: dict[str, float]


def wanted(config: FleetConfig) -> Wanted:
    """One machine has to hold everything, so it offers what is asked: these are shares, not cores."""
    place = config.placement
    pools: list[Placement | DrafterConfig] = [place.target, place.gateway, place.router, *config.drafters.values()]
    cpus = place.dcut_num_cpus + sum(pool.replicas * pool.num_cpus for pool in pools)
    resources: Counter[str] = Counter()
    for pool in pools:
        resources.update({name: pool.replicas * amount for name, amount in pool.resources.items()})
    return Wanted(math.ceil(cpus), dict(resources))
