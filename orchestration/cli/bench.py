"""draftfleet bench"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.cli.bench_options import Datasets, Shared, with_shared
from orchestration.cli.console import err, out
from orchestration.cli.failure import Failure

if TYPE_CHECKING:
    from orchestration.bench.load import Load
    from orchestration.bench.options import Arm
    from orchestration.bench.report.tables import Table
    from orchestration.bench.result import Result
    from orchestration.bench.runner import Step
    from orchestration.bench.summary import Summary

app = typer.Typer(
    help="Load on any OpenAI-compatible endpoint or a draftfleet gRPC one, with real prompts.", no_args_is_help=True
)

_MIXED = ["mixed"]
_CLASSES = ["chat", "code", "maths"]
_STATIC = ["mtp:1", "mtp:3", "dfly:3", "dfly:7", "lookup:7"]


@app.command()
@with_shared
def run(
    shared: Shared,
    dataset: Datasets = _MIXED,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Measured runs of each cell.")] = 1,
) -> None:
    """Measure one endpoint. Several datasets, contexts, concurrencies or rates make a sweep: one cell each.

    Without --request-rate and --trace the loop is closed: --concurrency requests at once (1). With them it is open:
    requests come by the clock, and --concurrency bounds how many run.
    """
    _measure([_arm(shared, "run", [])], shared, dataset, repeats)


@app.command()
@with_shared
def ab(
    shared: Shared,
    a: Annotated[list[str] | None, typer.Option("-a", metavar="KEY=VALUE", help="A setting of the first arm.")] = None,
    b: Annotated[list[str] | None, typer.Option("-b", metavar="KEY=VALUE", help="A setting of the second arm.")] = None,
    pairs: Annotated[int, typer.Option("--pairs", min=2, help="Pairs of runs of each cell.")] = 4,
    dataset: Datasets = _CLASSES,
) -> None:
    """Compare two arms in one run: A B, B A, A B, ... with the interval of their ratio.

    The arms share every option but what -a and -b change: name, url, model, api, max_tokens, temperature, top_p, seed,
    ignore_eos, drafter, max_draft_tokens, force. Example: draftfleet bench ab -a drafter=none -b drafter=auto -c 1 -c 8
    """
    arms = [_arm(shared, name, changes or []) for name, changes in (("A", a), ("B", b))]
    _measure(arms, shared, dataset, pairs)


@app.command()
@with_shared
def policies(
    shared: Shared,
    static: Annotated[
        list[str],
        typer.Option(
            "--static", metavar="KIND:LENGTH", help="A drafter and length that never change; may be repeated."
        ),
    ] = _STATIC,
    pairs: Annotated[int, typer.Option("--pairs", min=2, help="Turns of all arms at each load.")] = 4,
    dataset: Datasets = _MIXED,
) -> None:
    """The service's own choice against plain decoding and against drafts that never change, all in turns.

    Static arms draft in every round and verify all of it. Target and drafters on the same cores cannot overlap.
    Example: draftfleet bench policies -c 1 -c 4 -c 16 --num-prompts 32 -o policies.json
    """
    arms = [_arm(shared, "plain", ["drafter=none"])]
    for text in static:
        kind, colon, length = text.partition(":")
        if not colon:
            raise Failure(f"--static: {text!r} must be KIND:LENGTH, such as mtp:3")
        arms.append(_arm(shared, text, [f"drafter={kind}", f"max_draft_tokens={length}", "force=true"]))
    arms.append(_arm(shared, "adaptive", ["drafter=auto"]))
    _measure(arms, shared, dataset, pairs)


@app.command()
def compare(
    before: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A result.")],
    after: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Another one.")],
) -> None:
    """Ratios of two results, cell by cell. Of a noisy machine only ratios from one `ab` run last."""
    from orchestration.bench.report.differences import differences, warnings
    from orchestration.bench.result import load_result

    try:
        old, new = load_result(before), load_result(after)
        table = differences(old, new)
    except ValueError as error:
        raise Failure(str(error)) from error
    for warning in warnings(old, new):
        err.print(f"careful: {warning}", style="yellow", markup=False)
    _show(table)


def _arm(shared: Shared, name: str, changes: list[str]) -> Arm:
    from orchestration.bench.options import Arm, build_arm, with_settings

    given = {field: getattr(shared, field) for field in Arm.model_fields if field != "name"}
    try:
        return with_settings(build_arm({**given, "name": name}), changes)
    except ValueError as error:
        raise Failure(str(error)) from error


def _loads(shared: Shared) -> list[Load]:
    from pydantic import ValidationError

    from orchestration.bench.load import Load
    from orchestration.bench.options import first_problem

    rates, trace, concurrency = shared.request_rate, shared.trace, shared.concurrency
    if rates and trace:
        raise Failure("--request-rate and --trace: give one of them")
    if (rates or trace) and concurrency and len(concurrency) > 1:
        raise Failure("--concurrency bounds an open loop; give it once beside --request-rate or --trace")
    bound = concurrency[0] if concurrency else None
    try:
        if trace is not None:
            return [Load(kind="trace", trace=trace, trace_scale=shared.trace_scale, concurrency=bound)]
        if rates:
            shape = shared.burstiness
            return [Load(kind="poisson", request_rate=rate, burstiness=shape, concurrency=bound) for rate in rates]
        return [Load(concurrency=count) for count in concurrency or [1]]
    except ValidationError as error:
        raise Failure(first_problem(error)) from error


def _measure(arms: list[Arm], shared: Shared, datasets: list[str], repeats: int) -> None:
    import uvloop

    from orchestration.bench import runner
    from orchestration.bench.endpoints.client import EndpointError
    from orchestration.bench.objective import parse
    from orchestration.bench.prompts import read_prompts
    from orchestration.bench.result import Settings

    loads, output = _loads(shared), shared.output
    if output is not None and output.suffix != ".json":
        raise Failure(f"--output: {output} must end in .json")
    if output is not None:
        # Now rather than after hours of measuring.
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Failure(f"--output: {output.parent} cannot be made ({error.strerror})") from error
    settings = {
        "datasets": datasets,
        "contexts": shared.context or (),
        "loads": loads,
        "num_prompts": shared.num_prompts,
        "num_warmups": shared.num_warmups,
        "repeats": repeats,
        "seed": shared.seed,
        "unique_prompts": shared.unique_prompts,
        "timeout_s": shared.timeout,
        "save_detailed": shared.save_detailed,
    }
    try:
        chosen = Settings.model_validate({**settings, "goodput_ms": parse(shared.goodput or ())})
        own = read_prompts(shared.dataset_path) if shared.dataset_path is not None else None
        key = shared.api_key_file.read_text().strip() if shared.api_key_file is not None else None
        with _Progress() as progress:
            result = uvloop.run(runner.run(arms, chosen, own, key, progress.step, progress.ran))
    except (EndpointError, ValueError) as error:
        raise Failure(str(error)) from error
    _tell(result, output)


class _Progress:
    """What is being done on a terminal, and a line for every run."""

    def __init__(self) -> None:
        self._status = err.status("starting ...") if err.is_terminal else None

    def __enter__(self) -> _Progress:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def step(self, step: Step) -> None:
        if self._status is not None:
            self._status.update(f"{step.text}: {step.done} of {step.total}")

    def ran(self, words: str, summary: Summary) -> None:
        figures = [f"{summary.output_throughput:.1f} tok/s"]
        if summary.ttft is not None:
            figures.append(f"ttft p50 {summary.ttft.p50:.1f} ms")
        if summary.tpot is not None:
            figures.append(f"tpot {summary.tpot.mean:.2f} ms")
        if summary.errors:
            figures.append(f"{summary.requests - summary.completed} of {summary.requests} failed")
        err.print(f"{words}: {', '.join(figures)}", markup=False)


def _tell(result: Result, output: Path | None) -> None:
    from orchestration.bench.report.hindsight import hindsight
    from orchestration.bench.report.tables import notes, tables

    if output is not None:
        _write(result, output)
    for table in tables(result):
        _show(table)
    if len(result.arms) > 2:
        _show(hindsight(result))
    for note in notes(result):
        out.print(note, style="dim", markup=False)
    empty = [cell for cell in result.cells if not cell.total.completed]
    if empty:
        cell = empty[0]
        kind, text = next(iter(cell.total.error_texts.items()))
        raise Failure(f"no request of {cell.arm}, {cell.dataset}, {cell.load} came to its end; {kind}: {text}")


def _write(result: Result, output: Path) -> None:
    from orchestration.bench.report.page import as_html
    from orchestration.bench.report.plots import save_png

    result.save(output)
    output.with_suffix(".html").write_text(as_html(result))
    written = [output, output.with_suffix(".html")]
    try:
        save_png(result, output.with_suffix(".png"))
        written.append(output.with_suffix(".png"))
    except ImportError:
        err.print("no plots: matplotlib is not installed; run: pip install 'draftfleet[bench]'", markup=False)
    err.print(f"written: {', '.join(map(str, written))}", markup=False)


def _show(table: Table) -> None:
    from rich.table import Table as RichTable
    from rich.text import Text

    # Texts and not strings: what a server said may look like markup.
    shown = RichTable(box=None, pad_edge=False, header_style="bold", title=Text(table.title), title_justify="left")
    for index, column in enumerate(table.columns):
        shown.add_column(column, justify="left" if index < table.num_names else "right")
    for row in table.rows:
        shown.add_row(*map(Text, row))
    out.print(shown)
    out.print()
