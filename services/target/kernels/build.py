"""Compiles the C kernels once for this processor and loads them.

They are optional: without a C compiler the engine uses plain torch operations.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch

_HERE = Path(__file__).parent
_SOURCES = ("attention.c", "noise.c", "product.c", "rows.c")
_HEADERS = ("elements.h",)
_FLAGS = ("-O3", "-march=native", "-std=gnu11", "-fPIC", "-fopenmp", "-ffp-contract=fast", "-fno-math-errno")
_ELEMENTS = {torch.bfloat16: "bf16", torch.float32: "f32"}
_COMPILE_TIMEOUT_S = 600  # a busy machine takes minutes for what an idle one does in seconds


class KernelsUnavailable(RuntimeError):
    """No compiler, or what it built cannot be loaded; the message says which."""


class Kernels:
    """The compiled functions, by name and element type."""

    def __init__(self, libraries: dict[torch.dtype, ctypes.CDLL]) -> None:
        self._libraries = libraries

    def get(self, name: str, dtype: torch.dtype) -> Any:
        """A function that returns nothing. KeyError for an element type without kernels."""
        function = self._libraries[dtype][f"{name}_{_ELEMENTS[dtype]}"]
        function.restype = None
        return function


@cache
def load_kernels(cache_dir: Path) -> Kernels:
    """Compiles what is not in the cache. Raises KernelsUnavailable."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise KernelsUnavailable("no C compiler (cc, gcc or clang) was found")
    openmp = _loaded_openmp()
    if openmp is None:
        raise KernelsUnavailable("torch has loaded no OpenMP runtime to share")
    libraries = {dtype: _load(compiler, openmp, name, cache_dir) for dtype, name in _ELEMENTS.items()}
    for dtype, name in _ELEMENTS.items():
        if libraries[dtype][f"prepare_{name}"]() != 0:
            raise KernelsUnavailable("the system does not grant the matrix registers of this processor")
    return Kernels(libraries)


def _load(compiler: str, openmp: Path, element: str, cache_dir: Path) -> ctypes.CDLL:
    defines = ("-DUSE_BF16",) if element == "bf16" else ()
    key = hashlib.sha256("\0".join((processor(), compiler, str(openmp), *_FLAGS, *defines)).encode())
    key.update(sources_digest().encode())
    path = cache_dir / "kernels" / f"kernels-{element}-{key.hexdigest()[:16]}.so"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            objects = [f"{scratch}/{name}.o" for name in _SOURCES]
            for name, built in zip(_SOURCES, objects, strict=True):
                _run([compiler, *_FLAGS, *defines, "-c", str(_HERE / name), "-o", built])
            linked = f"{scratch}/kernels.so"
            # The very OpenMP runtime that torch uses: two would spin against each other.
            _run([compiler, "-shared", *objects, "-o", linked, str(openmp), "-lm"])
            os.replace(linked, path)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise KernelsUnavailable(f"{path} cannot be loaded: {error}") from error


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise KernelsUnavailable(f"{command[0]} took longer than {_COMPILE_TIMEOUT_S} s") from error
    if done.returncode != 0:
        raise KernelsUnavailable(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}")


def _loaded_openmp() -> Path | None:
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return None
    for line in maps.read_text().splitlines():
        path = line.rsplit(" ", 1)[-1]
        if "libgomp" in path:
            return Path(path)
    return None


def sources_digest() -> str:
    """Changes with the kernels' text."""
    digest = hashlib.sha256()
    for name in (*_SOURCES, *_HEADERS):
        digest.update((_HERE / name).read_bytes())
    return digest.hexdigest()


def processor() -> str:
    """What -march=native depends on."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return platform.processor()
    return "\n".join(
        sorted({line for line in info.read_text().splitlines() if line.startswith(("flags", "model name"))})
    )
