"""The folder for what is fetched once, and the moves that keep it whole."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from services.models.progress import OnProgress, Progress


def cache_root(cache_dir: Path | None = None) -> Path:
    """`cache_dir` where given, else `draftfleet` in the user's cache folder."""
    if cache_dir is not None:
        return cache_dir.expanduser()
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification has relative paths ignored.
    home = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return home / "draftfleet"


@contextmanager
def exclusive(folder: Path, on_progress: OnProgress) -> Iterator[None]:
    """Creates `folder` and holds its lock, so that two processes do not fill it at once."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        on_progress(Progress("wait", 0, 0))
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def new_folder(final: Path) -> Iterator[Path]:
    """A scratch folder that becomes `final` when the block ends well, and vanishes otherwise.

    The caller holds the lock of the parent, so a scratch folder that is already there is a leftover.
    """
    scratch = final.with_name(final.name + ".partial")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        yield scratch
        os.replace(scratch, final)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def sha256_of(path: Path) -> str:
    """Hexadecimal digest of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
