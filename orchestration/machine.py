"""Fits settings that were left open to the machine that runs everything."""

from __future__ import annotations

import importlib.util
import math
import os
import shutil
from collections import Counter
from dataclasses import dataclass

from orchestration.config import FleetConfig
from orchestration.topology import Topology


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
    """Gives the target what the user left open: all cores as threads, and a GPU where there is one.

    One machine has no pools. Raises ValueError when a target and a drafter would share a GPU by mistake, or
    gateways a port.
    """
    if config.gateway.grpc_port and config.placement.gateway.replicas > 1:
        raise ValueError(
            f"placement.gateway.replicas: {config.placement.gateway.replicas} cannot listen on one "
            f"gateway.grpc_port ({config.gateway.grpc_port}) of one machine; it must be 1, or the port 0"
        )
    engine, target = config.engine, config.placement.target
    on_gpu = has_gpu and engine.device != "cpu"
    if engine.threads == 0:
        engine = engine.model_copy(update={"threads": max(1, cores // target.replicas)})
    if on_gpu and target.num_gpus == 0:
        target = target.model_copy(update={"num_gpus": 1.0 / target.replicas})
    placement = config.placement.model_copy(update={"target": target})
    topology = Topology(share_gpus=config.topology.share_gpus)
    fitted = config.model_copy(update={"engine": engine, "placement": placement, "topology": topology})
    fitted.check_placement()
    return fitted


@dataclass(frozen=True, slots=True)
class Wanted:
    """What all replicas together want of Ray."""

    num_cpus: int
    resources: dict[str, float]


def wanted(config: FleetConfig) -> Wanted:
    """One machine has to hold everything, so it offers what is asked: these are shares, not cores."""
    demands = config.demands()
    resources: Counter[str] = Counter()
    for demand in demands:
        resources.update({name: demand.max_replicas * amount for name, amount in demand.resources.items()})
    return Wanted(math.ceil(sum(demand.max_replicas * demand.num_cpus for demand in demands)), dict(resources))
