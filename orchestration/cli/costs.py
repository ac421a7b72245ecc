"""draftfleet costs"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from orchestration.cli import options
from orchestration.cli.console import err, out
from orchestration.cli.failure import Failure


def costs(
    url: Annotated[str, typer.Option("--url", help="Address of the HTTP API.")] = "http://127.0.0.1:8000",
    api_key_file: options.ApiKeyFile = None,
    ca_file: options.CaFile = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw it into this file (PNG, SVG or PDF).")] = None,
) -> None:
    """What steps and drafts cost a running target, how often drafts stand, and what D-cut made of it."""
    from orchestration.cli.status import fetch_status

    targets = fetch_status(url, api_key_file, ca_file)["dcut"]
    if not targets:
        raise Failure("no target replica tells its costs")
    for target in targets:
        out.print(f"[bold]{target['replica']}[/]: {describe(target)}")
        out.print(_steps(target), _drafters(target))
    if plot is not None:
        from orchestration.cost_plot import plot_costs

        try:
            plot_costs(targets[0], plot)
        except ImportError:
            err.print("no plot: matplotlib is not installed (pip install matplotlib)")
        else:
            out.print(f"drawn: {plot}")


def describe(target: dict[str, Any]) -> str:
    """A replica's D-cut in one line."""
    counters = target["counters"]
    source = "measured" if target["is_profiled"] else "assumed"
    return (
        f"{target['mode']}, step times {source} x {target['step_factor']:.2f} "
        f"(off by {100 * target['step_error']:.0f}%), {counters['asked']} drafts asked, "
        f"{counters['skipped']} not worth it, {counters['probes']} probes; "
        f"{counters['kept_tokens']} of {counters['offered_tokens']} tokens verified, "
        f"{counters['wholly_cut']} drafts wholly cut, {target['decision_ms']:.2f} ms a decision"
    )


def _steps(target: dict[str, Any]) -> Table:
    table = Table(
        box=None, pad_edge=False, header_style="bold", title="step, ms expected (measured)", title_justify="left"
    )
    table.add_column("rows", justify="right")
    for line in target["lines"]:
        name = f"context {line['context']}" + (f", {line['prefill']} prompt rows" if line["prefill"] else "")
        table.add_column(name, justify="right")
    columns = [
        [f"{now:.1f} ({then:.1f})" for now, then in zip(line["expected_ms"], line["measured_ms"], strict=True)]
        for line in target["lines"]
    ]
    for index, rows in enumerate(target["lines"][0]["rows"]):
        table.add_row(str(rows), *(column[index] for column in columns))
    return table


def _drafters(target: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", title="drafts", title_justify="left")
    for name in ("kind", "class", "wait ms", "of it drafting", "calibration error", "accepted at 1, 2, ..."):
        table.add_column(name)
    waits = {wait["kind"]: wait for wait in target["waits"]}
    errors: dict[str, list[str]] = {}
    for entry in target["calibration"]:
        how = "greedy" if entry["is_greedy"] else "sampled"
        text = f"{entry['stated_error']:.2f} -> {entry['corrected_error']:.2f} {how}"
        errors.setdefault(entry["kind"], []).append(text)
    for entry in target["acceptance"]:
        kind = entry["kind"]
        wait = waits.get(kind)
        table.add_row(
            kind,
            entry["task_class"] or "any",
            "-" if wait is None else f"{wait['wait_ms']:.1f}",
            "-" if wait is None else f"{wait['busy_ms']:.1f}",
            ", ".join(errors.get(kind, ())) or "-",
            " ".join(f"{value:.2f}" for value in entry["acceptance"][:7]),
        )
    return table
