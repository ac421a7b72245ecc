"""draftfleet train"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.cli.console import err, fetch_model, out
from orchestration.cli.failure import Failure, failures_of_training

if TYPE_CHECKING:
    from services.training.pipeline import Run

app = typer.Typer(
    help="Drafters for a target of your own: data, hidden states, training, evaluation.", no_args_is_help=True
)

RecipeOption = Annotated[str, typer.Option("--recipe", "-r", help="A recipe's name or a YAML file.")]
FolderOption = Annotated[Path, typer.Option("--folder", "-f", help="Where the run's data and drafters lie.")]
KindOption = Annotated[str, typer.Option("--kind", "-k", help="mtp or dfly.")]
_FOLDER = Path("runs/default")
_KINDS = ["mtp", "dfly"]


@app.command()
def synthesize(recipe: RecipeOption = "laptop", folder: FolderOption = _FOLDER) -> None:
    """Let the target write dialogues; goes on where it was stopped."""
    from services.training import pipeline

    run = _run(recipe, folder)
    total = run.recipe.synthesis.dialogues
    with _graceful() as is_stopped, _bar("writing", total) as show, failures_of_training():
        pipeline.synthesize(
            run,
            lambda p: show(p.done, f"{p.kept} kept, {p.num_tokens} tokens, dropped {sum(p.dropped.values())}"),
            is_stopped,
        )
    out.print(f"dialogues: {run.dialogues}")


@app.command()
def capture(recipe: RecipeOption = "laptop", folder: FolderOption = _FOLDER) -> None:
    """Leave the target's hidden states and likeliest tokens on disk; goes on where it was stopped."""
    from services.training import pipeline

    run = _run(recipe, folder)
    with _graceful() as is_stopped, _bar("capturing", None) as show, failures_of_training():
        pipeline.capture(run, lambda p: show(p.num_documents, f"{p.num_tokens} tokens"), is_stopped)
    out.print(f"captured: {run.captured}")


@app.command()
def fit(
    kind: KindOption,
    recipe: RecipeOption = "laptop",
    folder: FolderOption = _FOLDER,
    workers: Annotated[int, typer.Option(min=0, help="Ray Train workers; 0 trains in this process.")] = 0,
    ray_address: Annotated[str | None, typer.Option(help="A Ray cluster; otherwise a private one here.")] = None,
    tensorboard: Annotated[bool, typer.Option(help="Also write TensorBoard events.")] = False,
) -> None:
    """Train a drafter; goes on from its newest checkpoint."""
    from services.training import pipeline
    from services.training.watch import TrainingDiverged

    run, chosen = _run(recipe, folder), _kind(kind)
    config = run.recipe.mtp if chosen == "mtp" else run.recipe.dfly
    if workers:
        from orchestration.ray_training import connected
        from services.training.distributed import fit_with_ray

        with failures_of_training(), connected(ray_address, workers):
            fit_with_ray(run.recipe, folder, run.model, chosen, workers)
        return
    events = _events(run.folder / chosen / "events") if tensorboard else None
    with _graceful() as is_stopped, _bar(f"training {chosen}", config.steps) as show, failures_of_training():
        trainer = pipeline.trainer_of(run, chosen)
        try:
            trainer.run(
                lambda p: show(
                    p.step,
                    f"loss {p.loss:.3f}, accepted {p.accepted:.2f}, {p.tokens_per_s:.0f} tokens/s, "
                    f"bottleneck: {p.bottleneck}",
                ),
                is_stopped,
                events,
            )
        except TrainingDiverged as error:
            raise Failure(str(error)) from error
    out.print(f"drafter: {run.drafter(chosen)}")


@app.command("eval")
def evaluate(
    recipe: RecipeOption = "laptop",
    folder: FolderOption = _FOLDER,
    kinds: Annotated[list[str], typer.Option("--kind", "-k", help="mtp, dfly or lookup; may be repeated.")] = _KINDS,
    weights: Annotated[
        Path | None, typer.Option(help="Folder that holds mtp/ and dfly/; otherwise the run's own drafters.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Folder for table, JSON and plot; otherwise the run's.")] = None,
) -> None:
    """Measure accepted lengths through the real verification path, greedy and at temperature 1."""
    from orchestration.acceptance import evaluate_all
    from services.training.evaluation.plot import plot_acceptance
    from services.training.evaluation.report import as_json, as_markdown

    run = _run(recipe, folder)
    try:
        with failures_of_training():
            results, conditions = evaluate_all(run, kinds, weights, lambda text: err.print(text, markup=False))
    except RuntimeError as error:  # a drafter that does not start or answer
        raise Failure(str(error)) from error
    place = output or folder / "evaluation"
    place.mkdir(parents=True, exist_ok=True)
    table = as_markdown(results, conditions)
    (place / "table.md").write_text(table)
    (place / "results.json").write_text(json.dumps(as_json(results, conditions), indent=1) + "\n")
    try:
        plot_acceptance(results, place / "acceptance.png")
    except ImportError:
        err.print("no plot: matplotlib is not installed (pip install matplotlib)")
    out.print(table, markup=False)
    out.print(f"written to {place}")


def _run(recipe: str, folder: Path) -> Run:
    from services.training.config import load_recipe
    from services.training.pipeline import Run

    try:
        loaded = load_recipe(recipe)
    except ValueError as error:
        raise Failure(str(error)) from error
    return Run(loaded, folder, fetch_model(loaded.target, None))


def _kind(name: str):  # type: ignore[no-untyped-def]
    if name not in ("mtp", "dfly"):
        raise Failure(f"kind: {name!r} is not known; it must be mtp or dfly")
    return name


def _events(folder: Path):  # type: ignore[no-untyped-def]
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise Failure("tensorboardX is not installed; run: pip install 'draftfleet[training]'") from error
    return SummaryWriter(str(folder))


@contextmanager
def _graceful() -> Iterator[Callable[[], bool]]:
    """SIGTERM and Ctrl-C finish the step in hand and save; a second one ends at once."""
    event = threading.Event()

    def stop(number: int, _: object) -> None:
        event.set()
        err.print("stopping after the step in hand ...")
        signal.signal(number, signal.SIG_DFL)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield event.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _bar(title: str, total: int | None) -> Iterator[Callable[[int, str], None]]:
    """A progress bar on a terminal, else a line now and then."""
    import time

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    if err.is_terminal:
        columns = (
            TextColumn(title),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
        )
        with Progress(*columns, console=err) as bars:
            task = bars.add_task("", total=total)
            yield lambda done, text: bars.update(task, completed=done, description=text)
        return
    told = 0.0

    def tell(done: int, text: str) -> None:
        nonlocal told
        if time.monotonic() - told >= 10 or done == total:
            told = time.monotonic()
            err.print(f"{title}: {done}{'' if total is None else f' of {total}'}, {text}", soft_wrap=True)

    yield tell
