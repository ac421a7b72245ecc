"""Where and with what a benchmark ran. No names of hosts or people, no paths."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess

import psutil
from pydantic import BaseModel, ConfigDict

from orchestration.machine import num_cores
from services.training.provenance import revision

_PACKAGES = ("draftfleet", "grpcio", "httpx", "numpy", "ray", "torch", "transformers", "uvloop")
_TIMEOUT_S = 10.0


class Machine(BaseModel):
    """The machine of the load generator; an endpoint may run elsewhere."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    system: str
    processor: str
    cores: int  # that this process may use
    memory_gib: float
    gpus: tuple[str, ...]
    load_average: float  # of the minute before the benchmark: what else was running


def this_machine() -> Machine:
    return Machine(
        system=f"{platform.system()} {platform.release()}",
        processor=_processor(),
        cores=num_cores(),
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        gpus=_gpus(),
        load_average=round(os.getloadavg()[0], 2),
    )


def versions() -> dict[str, str]:
    """Of Python, this checkout and the packages that matter, as far as they are installed."""
    found = {"python": platform.python_version(), "revision": revision()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.machine()


def _gpus() -> tuple[str, ...]:
    if shutil.which("nvidia-smi") is None:
        return ()
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_TIMEOUT_S).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(line.strip() for line in said.splitlines() if line.strip())
