"""draftfleet bench"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestration.cli import bench_options as shared
from orchestration.cli import options
from orchestration.cli.console import err, out
from orchestration.cli.failure import Failure

if TYPE_CHECKING:
    from orchestration.bench.load import Load
    from orchestration.bench.options import Arm
    from orchestration.bench.result import Result
    from orchestration.bench.runner import Step
    from orchestration.bench.summary import Summary
    from orchestration.bench.tables import Table

app = typer.Typer(
    help="Load on any OpenAI-compatible endpoint or a draftfleet gRPC one, with real prompts.", no_args_is_help=True
)

_MIXED = ["mixed"]
_CLASSES = ["chat", "code", "maths"]


@app.command()
def run(
    url: shared.Url = "grpc://127.0.0.1:9000",
    model: shared.Model = "",
    api: shared.Api = "chat",
    dataset: shared.Datasets = _MIXED,
    dataset_path: shared.DatasetPath = None,
    context: shared.Contexts = None,
    concurrency: shared.Concurrency = None,
    request_rate: shared.Rates = None,
    burstiness: shared.Burstiness = 1.0,
    trace: shared.Trace = None,
    trace_scale: shared.TraceScale = 1.0,
    num_prompts: shared.NumPrompts = None,
    num_warmups: shared.NumWarmups = None,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Measured runs of each cell.")] = 1,
    max_tokens: shared.MaxTokens = 128,
    temperature: options.Temperature = 0.0,
    top_p: options.TopP = 1.0,
    seed: shared.Seed = 0,
    ignore_eos: shared.IgnoreEos = False,
    drafter: shared.Drafter = None,
    max_draft_tokens: shared.MaxDraft = None,
    unique_prompts: shared.UniquePrompts = False,
    goodput: shared.Goodput = None,
    timeout: shared.Timeout = 600.0,
    api_key_file: shared.ApiKeyFile = None,
    output: shared.Output = None,
    save_detailed: shared.SaveDetailed = False,
) -> None:
    """Measure one endpoint. Several datasets, contexts, concurrencies or rates make a sweep: one cell each.

    Without --request-rate and --trace the loop is closed: --concurrency requests at once (1). With them it is open:
    requests come by the clock, and --concurrency bounds how many run.
    """
    fields = {
        "name": "run",
        "url": url,
        "model": model,
        "api": api,
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "seed": seed,
        "ignore_eos": ignore_eos,
        "drafter": drafter,
        "max_draft_tokens": max_draft_tokens,
    }
    settings = {
        "datasets": dataset,
        "contexts": context or (),
        "num_prompts": num_prompts,
        "num_warmups": num_warmups,
        "repeats": repeats,
        "seed": seed,
        "unique_prompts": unique_prompts,
        "timeout_s": timeout,
        "save_detailed": save_detailed,
    }
    arm = _arm(fields, [])
    loads = _loads(concurrency, request_rate, burstiness, trace, trace_scale)
    _measure([arm], settings, loads, goodput, dataset_path, api_key_file, output)


@app.command()
def ab(
    a: Annotated[list[str] | None, typer.Option("-a", metavar="KEY=VALUE", help="A setting of the first arm.")] = None,
    b: Annotated[list[str] | None, typer.Option("-b", metavar="KEY=VALUE", help="A setting of the second arm.")] = None,
    pairs: Annotated[int, typer.Option("--pairs", min=2, help="Pairs of runs of each cell.")] = 4,
    url: shared.Url = "grpc://127.0.0.1:9000",
    model: shared.Model = "",
    api: shared.Api = "chat",
    dataset: shared.Datasets = _CLASSES,
    dataset_path: shared.DatasetPath = None,
    context: shared.Contexts = None,
    concurrency: shared.Concurrency = None,
    request_rate: shared.Rates = None,
    burstiness: shared.Burstiness = 1.0,
    trace: shared.Trace = None,
    trace_scale: shared.TraceScale = 1.0,
    num_prompts: shared.NumPrompts = None,
    num_warmups: shared.NumWarmups = None,
    max_tokens: shared.MaxTokens = 128,
    temperature: options.Temperature = 0.0,
    top_p: options.TopP = 1.0,
    seed: shared.Seed = 0,
    ignore_eos: shared.IgnoreEos = False,
    drafter: shared.Drafter = None,
    max_draft_tokens: shared.MaxDraft = None,
    unique_prompts: shared.UniquePrompts = False,
    goodput: shared.Goodput = None,
    timeout: shared.Timeout = 600.0,
    api_key_file: shared.ApiKeyFile = None,
    output: shared.Output = None,
    save_detailed: shared.SaveDetailed = False,
) -> None:
    """Compare two arms in one run: A B, B A, A B, ... with the interval of their ratio.

    The arms share every option but what -a and -b change: name, url, model, api, max_tokens, temperature, top_p, seed,
    ignore_eos, drafter, max_draft_tokens. Example: draftfleet bench ab -a drafter=none -b drafter=auto -c 1 -c 8
    """
    fields = {
        "url": url,
        "model": model,
        "api": api,
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "seed": seed,
        "ignore_eos": ignore_eos,
        "drafter": drafter,
        "max_draft_tokens": max_draft_tokens,
    }
    settings = {
        "datasets": dataset,
        "contexts": context or (),
        "num_prompts": num_prompts,
        "num_warmups": num_warmups,
        "repeats": pairs,
        "seed": seed,
        "unique_prompts": unique_prompts,
        "timeout_s": timeout,
        "save_detailed": save_detailed,
    }
    arms = [_arm({**fields, "name": name}, given or []) for name, given in (("A", a), ("B", b))]
    loads = _loads(concurrency, request_rate, burstiness, trace, trace_scale)
    _measure(arms, settings, loads, goodput, dataset_path, api_key_file, output)


@app.command()
def compare(
    before: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A result.")],
    after: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Another one.")],
) -> None:
    """Ratios of two results, cell by cell. Of a noisy machine only ratios from one `ab` run last."""
    from orchestration.bench.differences import differences, warnings
    from orchestration.bench.result import load_result

    try:
        old, new = load_result(before), load_result(after)
        table = differences(old, new)
    except ValueError as error:
        raise Failure(str(error)) from error
    for warning in warnings(old, new):
        err.print(f"careful: {warning}", style="yellow", markup=False)
    _show(table)


def _arm(fields: dict[str, Any], given: list[str]) -> Arm:
    from orchestration.bench.options import build_arm, with_settings

    try:
        return with_settings(build_arm(fields), given)
    except ValueError as error:
        raise Failure(str(error)) from error


def _loads(
    concurrency: list[int] | None,
    rates: list[float] | None,
    burstiness: float,
    trace: Path | None,
    trace_scale: float,
) -> list[Load]:
    from pydantic import ValidationError

    from orchestration.bench.load import Load

    if rates and trace:
        raise Failure("--request-rate and --trace: give one of them")
    if (rates or trace) and concurrency and len(concurrency) > 1:
        raise Failure("--concurrency bounds an open loop; give it once beside --request-rate or --trace")
    bound = concurrency[0] if concurrency else None
    try:
        if trace is not None:
            return [Load(kind="trace", trace=trace, trace_scale=trace_scale, concurrency=bound)]
        if rates:
            return [Load(kind="poisson", request_rate=rate, burstiness=burstiness, concurrency=bound) for rate in rates]
        return [Load(concurrency=count) for count in concurrency or [1]]
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise Failure(f"{'.'.join(map(str, first['loc']))}: {first['input']!r}: {first['msg']}") from error


def _measure(
    arms: list[Arm],
    settings: dict[str, Any],
    loads: list[Load],
    goodput: list[str] | None,
    dataset_path: Path | None,
    api_key_file: Path | None,
    output: Path | None,
) -> None:
    import uvloop

    from orchestration.bench import runner
    from orchestration.bench.client import EndpointError
    from orchestration.bench.objective import parse
    from orchestration.bench.prompts import read_prompts
    from orchestration.bench.result import Settings

    if output is not None and output.suffix != ".json":
        raise Failure(f"--output: {output} must end in .json")
    if output is not None:
        # Now rather than after hours of measuring.
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Failure(f"--output: {output.parent} cannot be made ({error.strerror})") from error
    try:
        chosen = Settings.model_validate({**settings, "loads": loads, "goodput_ms": parse(goodput or ())})
        own = read_prompts(dataset_path) if dataset_path is not None else None
        key = api_key_file.read_text().strip() if api_key_file is not None else None
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
    from orchestration.bench.tables import notes, tables

    if output is not None:
        _write(result, output)
    for table in tables(result):
        _show(table)
    for note in notes(result):
        out.print(note, style="dim", markup=False)
    empty = [cell for cell in result.cells if not cell.total.completed]
    if empty:
        cell = empty[0]
        kind, text = next(iter(cell.total.error_texts.items()))
        raise Failure(f"no request of {cell.arm}, {cell.dataset}, {cell.load} came to its end; {kind}: {text}")


def _write(result: Result, output: Path) -> None:
    from orchestration.bench.page import as_html
    from orchestration.bench.plots import save_png

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
