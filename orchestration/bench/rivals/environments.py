"""A virtual environment for each rival: their packages go together neither with ours nor with each other's."""

from __future__ import annotations

import subprocess
import venv
from collections.abc import Callable
from pathlib import Path

from orchestration.bench.rivals.recipes import OWN_PYTHON, Rival
from services.models.cache import exclusive
from services.models.progress import silent

_DONE = "installed.txt"
_ASK_VERSION = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"


class InstallError(RuntimeError):
    """A rival cannot be installed; the message ends with pip's last words."""


def python_of(rival: Rival, root: Path, tell: Callable[[str], None]) -> Path:
    """The interpreter that has the rival's packages; installs them the first time. Raises InstallError."""
    if not rival.environment:
        return OWN_PYTHON
    place = root / rival.environment
    folder = place / "venv"
    wanted = "\n".join(rival.requirements)
    with exclusive(place, silent):
        done = folder / _DONE
        if done.is_file() and done.read_text() == wanted:
            return folder / "bin" / "python"
        tell(f"installing {wanted} into {folder}; what has to be built takes minutes")
        _install(rival, folder)
        done.write_text(wanted)
    return folder / "bin" / "python"


def version_of(rival: Rival, python: Path) -> str:
    command = [str(python), "-c", _ASK_VERSION, rival.package]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _install(rival: Rival, folder: Path) -> None:
    venv.create(folder, clear=True, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    commands = [[*pip, "install", "--no-input", "--quiet", *rival.requirements]]
    if rival.unwanted:
        commands.append([*pip, "uninstall", "--yes", "--quiet", *rival.unwanted])
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise InstallError(f"{rival.name}: pip failed:\n{done.stderr[-2000:]}")
