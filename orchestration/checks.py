"""What can be wrong with a machine, and what to do about it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from orchestration.machine import num_cores
from orchestration.ports import PortTakenError, check_port_free
from services.models import default
from services.models.cache import cache_root

Level = Literal["ok", "warn", "fail"]

MIN_MEMORY_GB = 4.0
MIN_DISK_GB = 2.0
MIN_SHARED_MEMORY_MB = 600
PACKAGES = ("torch", "ray", "transformers", "grpcio", "protobuf", "pydantic", "gguf")


@dataclass(frozen=True, slots=True)
class Check:
    """One finding; `advice` says what to do when it is not ok."""

    name: str
    level: Level
    found: str
    advice: str = ""


def all_checks(http_port: int, grpc_port: int, cache_dir: Path | None = None) -> Iterator[Check]:
    """Every check, the cheap ones first."""
    yield check_python(sys.version_info[:3])
    yield check_system()
    yield check_cores(num_cores())
    yield check_memory(psutil.virtual_memory().available / 1e9)
    yield check_shared_memory()
    yield from check_packages()
    yield check_compiler()
    yield check_gpu()
    yield check_port("HTTP port", "127.0.0.1", http_port, "--http-port")
    yield check_port("gRPC port", "0.0.0.0", grpc_port, "--grpc-port")
    yield check_model(cache_dir)
    yield check_disk(cache_root(cache_dir))


def check_python(version: tuple[int, int, int]) -> Check:
    found = ".".join(map(str, version))
    if version < (3, 10):
        return Check("Python", "fail", found, "install Python 3.10 or newer")
    return Check("Python", "ok", f"{found} ({sys.executable})")


def check_system() -> Check:
    found = f"{platform.system()} {platform.release()} {platform.machine()}"
    if platform.system() != "Linux":
        return Check("system", "fail", found, "the service runs on Linux; use a container or a virtual machine")
    return Check("system", "ok", found)


def check_cores(cores: int) -> Check:
    flags = _cpu_flags()
    fast = [flag for flag in ("amx_bf16", "avx512_bf16", "avx512f", "avx2") if flag in flags]
    found = f"{cores} usable; {', '.join(fast) or 'no wide vectors'}"
    if cores < 2:
        return Check("CPU", "warn", found, "with one core all replicas share it; expect slow answers")
    return Check("CPU", "ok", found)


def check_memory(available_gb: float) -> Check:
    found = f"{available_gb:.1f} GB available"
    if available_gb < MIN_MEMORY_GB:
        return Check("memory", "warn", found, f"free some: the default service wants {MIN_MEMORY_GB:.0f} GB")
    return Check("memory", "ok", found)


def check_shared_memory() -> Check:
    try:
        free_mb = shutil.disk_usage("/dev/shm").free / 1e6
    except OSError:
        return Check("shared memory", "warn", "no /dev/shm", "Ray falls back to the disk; mount a tmpfs there")
    if free_mb < MIN_SHARED_MEMORY_MB:
        return Check("shared memory", "warn", f"{free_mb:.0f} MB in /dev/shm", "enlarge it (docker run --shm-size=1g)")
    return Check("shared memory", "ok", f"{free_mb:.0f} MB in /dev/shm")


def check_packages() -> Iterator[Check]:
    for name in PACKAGES:
        try:
            yield Check(name, "ok", importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            yield Check(name, "fail", "not installed", "install draftfleet again: pip install draftfleet")


def check_compiler() -> Check:
    if found := next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None):
        return Check("C compiler", "ok", found)
    return Check("C compiler", "warn", "none", "install gcc or clang: attention on CPUs is slower without it")


def check_gpu() -> Check:
    if shutil.which("nvidia-smi") is None:
        return Check("GPU", "ok", "no NVIDIA driver: the target runs on the CPU")
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        listed = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        return Check("GPU", "warn", f"nvidia-smi fails ({error})", "repair the driver, or set engine.device=cpu")
    import torch

    if not torch.cuda.is_available():
        return Check(
            "GPU", "warn", f"{listed}; torch {torch.__version__} cannot use it", "install a CUDA build of torch"
        )
    return Check("GPU", "ok", "; ".join(listed.splitlines()))


def check_port(name: str, host: str, port: int, flag: str) -> Check:
    try:
        check_port_free(name, host, port)
    except PortTakenError:
        return Check(name, "warn", f"{port} is taken", f"stop what listens there, or choose another with {flag}")
    return Check(name, "ok", f"{port} is free")


def check_model(cache_dir: Path | None) -> Check:
    if ready := default.cached_default(cache_dir):
        return Check("default model", "ok", str(ready))
    return Check("default model", "warn", "not fetched yet", "draftfleet models fetch")


def check_disk(folder: Path) -> Check:
    place = next(path for path in (folder, *folder.parents) if path.exists())
    free_gb = shutil.disk_usage(place).free / 1e9
    found = f"{free_gb:.1f} GB free for {folder}"
    if not os.access(place, os.W_OK):
        return Check("disk", "fail", f"{place} is not writable", "set XDG_CACHE_HOME or model.cache_dir")
    if free_gb < MIN_DISK_GB:
        return Check("disk", "warn", found, "free some, or keep models elsewhere with model.cache_dir")
    return Check("disk", "ok", found)


def _cpu_flags() -> frozenset[str]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return frozenset()
    line = next((line for line in text.splitlines() if line.startswith(("flags", "Features"))), "")
    return frozenset(line.partition(":")[2].split())
