"""Compiles the C kernels once for this processor and loads them.

They are optional: without a C compiler the engine uses plain torch operations.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

log = logging.getLogger(__name__)

_SOURCE = Path(__file__).with_name("attention.c")
_FLAGS = ("-O3", "-march=native", "-std=gnu11", "-fPIC", "-fopenmp", "-ffp-contract=fast", "-fno-math-errno")
_COMPILE_TIMEOUT_S = 120


class KernelsUnavailable(RuntimeError):
    """No compiler, or what it built cannot be loaded; the message says which."""


@cache
def load_kernels(cache_dir: Path) -> dict[str, ctypes.CDLL]:
    """The kernel library for each element type, 'bf16' and 'f32'.

    Raises KernelsUnavailable.
    """
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise KernelsUnavailable("no C compiler (cc, gcc or clang) was found")
    openmp = _loaded_openmp()
    if openmp is None:
        raise KernelsUnavailable("torch has loaded no OpenMP runtime to share")
    return {name: _load(compiler, openmp, name, cache_dir) for name in ("bf16", "f32")}


def _load(compiler: str, openmp: Path, element: str, cache_dir: Path) -> ctypes.CDLL:
    defines = ("-DUSE_BF16",) if element == "bf16" else ()
    key = hashlib.sha256("\0".join((_processor(), compiler, str(openmp), *_FLAGS, *defines)).encode())
    key.update(_SOURCE.read_bytes())
    path = cache_dir / "kernels" / f"attention-{element}-{key.hexdigest()[:16]}.so"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            built, linked = f"{scratch}/attention.o", f"{scratch}/attention.so"
            _run([compiler, *_FLAGS, *defines, "-c", str(_SOURCE), "-o", built])
            # The very OpenMP runtime that torch uses: two would spin against each other.
            _run([compiler, "-shared", built, "-o", linked, str(openmp), "-lm"])
            os.replace(linked, path)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise KernelsUnavailable(f"{path} cannot be loaded: {error}") from error


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise KernelsUnavailable(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}")


def _loaded_openmp() -> Path | None:
    import torch  # noqa: F401  # loads the runtime that is looked for

    maps = Path("/proc/self/maps")
    if not maps.exists():
        return None
    for line in maps.read_text().splitlines():
        path = line.rsplit(" ", 1)[-1]
        if "libgomp" in path:
            return Path(path)
    return None


def _processor() -> str:
    """What -march=native depends on."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return platform.processor()
    return "\n".join(
        sorted({line for line in info.read_text().splitlines() if line.startswith(("flags", "model name"))})
    )
