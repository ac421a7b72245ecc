"""Where output goes: answers to stdout, everything else to stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from orchestration.cli.failure import Failure
from services.models.digest import check_digest
from services.models.errors import ModelUnavailableError
from services.models.progress import Progress as ModelProgress
from services.models.source import ModelFolder, resolve

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False)

_STAGES = {
    "wait": "waiting for another process that fetches it",
    "download": "downloading the model",
    "unpack": "unpacking the model",
    "convert": "converting the model",
}


def fetch_model(target: str, cache_dir: Path | None, sha256: str | None = None) -> ModelFolder:
    """`resolve` with a progress bar on stderr, and a check of the content. Raises Failure."""
    bars = Progress(
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"),
        DownloadColumn(), TimeElapsedColumn(), console=err, transient=True,
    )  # fmt: skip
    tasks = {}
    told = set()

    def show(step: ModelProgress) -> None:
        if step.stage not in told and not err.is_terminal:
            err.print(f"{_STAGES[step.stage]} ...")
        told.add(step.stage)
        if step.stage not in tasks:
            tasks[step.stage] = bars.add_task(_STAGES[step.stage], total=None)
        bars.update(tasks[step.stage], completed=step.done, total=step.total or None)

    try:
        with bars:
            folder = resolve(target, cache_dir, show)
        if sha256 is not None:
            check_digest(folder.path, sha256)
        return folder
    except (ModelUnavailableError, ValueError) as error:
        raise Failure(str(error)) from error


@contextmanager
def steps(title: str) -> Iterator[Callable[[str], None]]:
    """A spinner that names the step under way; plain lines where stderr is no terminal."""
    if not err.is_terminal:
        yield lambda text: err.print(f"{title}: {text} ...")
        return
    with err.status(f"{title} ...") as spinner:
        yield lambda text: spinner.update(f"{title}: {text} ...")
