"""Plots of a result. They need matplotlib, which is no dependency."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestration.bench.report.figures import FIGURES
from orchestration.bench.result import Cell, Result
from services.plotting import headless_pyplot

_LATENCIES = (("ttft", "time to first token"), ("tpot", "time per output token"))
_Point = Callable[[Cell], float | None]


def save_png(result: Result, path: Path) -> None:
    """Raises ImportError without matplotlib."""
    pyplot = headless_pyplot()
    figure = _draw(pyplot, result)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def as_svg(result: Result) -> str:
    """For a page that holds everything itself. Raises ImportError without matplotlib."""
    pyplot = headless_pyplot()
    figure = _draw(pyplot, result)
    text = io.StringIO()
    figure.savefig(text, format="svg")
    pyplot.close(figure)
    svg = text.getvalue()
    return svg[svg.index("<svg") :]


def _draw(pyplot: Any, result: Result) -> Any:
    """A row of panels for each dataset, or one over all where contexts are what varies."""
    if result.settings.contexts:
        rows = [("", list(result.cells))]
    else:
        rows = [(name, [cell for cell in result.cells if cell.dataset == name]) for name in result.sources]
    num_panels = 5 if result.pairings else 4
    figure, axes = pyplot.subplots(
        len(rows), num_panels, figsize=(3.8 * num_panels, 3.2 * len(rows)), squeeze=False, layout="constrained"
    )
    for line, (name, cells) in zip(axes, rows, strict=True):
        axis = _ByContext(result) if result.settings.contexts else _ByLoad(result)
        _panel(line[0], axis, cells, (("", lambda c: c.total.output_throughput),), "output tok/s")
        for panel, (figure_name, words) in zip(line[1:3], _LATENCIES, strict=True):
            _panel(
                panel,
                axis,
                cells,
                tuple((s, _value(f"{figure_name}_{s}")) for s in ("p50", "p99")),
                f"{words}, ms (dotted: p99)",
            )
        _speeds(line[3], axis, cells)
        if result.pairings:
            _ratios(line[4], result, name)
        line[0].set_title(name)
    axes[0][0].legend(fontsize=7)
    return figure


def _value(name: str) -> _Point:
    return lambda cell: FIGURES[name].value(cell.total)


class _ByLoad:
    """Load to the right; concurrency and rates as numbers where all loads are of one kind."""

    def __init__(self, result: Result) -> None:
        loads = result.settings.loads
        kinds = {load.kind for load in loads}
        self.title = "load"
        self.ticks = {float(index): load.label for index, load in enumerate(loads)}
        self._places = {load.label: float(index) for index, load in enumerate(loads)}
        if len(loads) > 1 and kinds == {"closed"}:
            self.title = "requests at once"
            self.ticks = {float(load.concurrency or 0): str(load.concurrency) for load in loads}
            self._places = {load.label: float(load.concurrency or 0) for load in loads}
        if len(loads) > 1 and kinds == {"poisson"} and not any(math.isinf(load.request_rate or 0) for load in loads):
            self.title, self.ticks = "requests/s", {}
            self._places = {load.label: load.request_rate or 0.0 for load in loads}

    def place(self, cell: Cell) -> float:
        return self._places[cell.load]

    def line(self, cell: Cell) -> str:
        return cell.arm


class _ByContext:
    """Tokens of the prompt to the right, a line for each load."""

    title = "prompt tokens"
    ticks: Mapping[float, str] = {}

    def __init__(self, result: Result) -> None:
        self._has_arms = len(result.arms) > 1

    def place(self, cell: Cell) -> float:
        return cell.total.prompt_tokens / max(1, cell.total.completed)

    def line(self, cell: Cell) -> str:
        return f"{cell.arm}, {cell.load}" if self._has_arms else cell.load


def _panel(
    panel: Any, axis: _ByLoad | _ByContext, cells: Sequence[Cell], points: Sequence[tuple[str, _Point]], title: str
) -> None:
    for color, (name, line) in enumerate(_lines(axis, cells).items()):
        for (suffix, point), style in zip(points, ("-o", ":s"), strict=False):
            found = [(axis.place(cell), value) for cell in line if (value := point(cell)) is not None]
            _plot(panel, found, style, color, f"{name} {suffix}".strip())
    panel.set_xlabel(axis.title)
    panel.set_ylabel(title, fontsize=8)
    panel.margins(0.1)
    panel.set_ylim(bottom=0)
    if axis.ticks:
        panel.set_xticks(list(axis.ticks), list(axis.ticks.values()), fontsize=7)
    panel.grid(alpha=0.3)


def _speeds(panel: Any, axis: _ByLoad | _ByContext, cells: Sequence[Cell]) -> None:
    """What one user sees against what all get together: up and to the right is better."""
    for color, (name, line) in enumerate(_lines(axis, cells).items()):
        found = [
            (1e3 / cell.total.tpot.mean, cell.total.output_throughput)
            for cell in line
            if cell.total.tpot is not None and cell.total.tpot.mean > 0
        ]
        _plot(panel, found, "-o", color, name)
    panel.set_xlabel("tok/s of one answer")
    panel.set_ylabel("output tok/s", fontsize=8)
    panel.margins(0.1)
    panel.set_xlim(left=0)
    panel.set_ylim(bottom=0)
    panel.grid(alpha=0.3)


def _ratios(panel: Any, result: Result, dataset: str) -> None:
    """The pairs' ratios of output throughput with their intervals, over the first arm."""
    base = result.pairings[0].first
    pairings = [p for p in result.pairings if p.first == base and (p.dataset == dataset or not dataset)]
    known = [(p, p.ratios["output_throughput"]) for p in pairings if "output_throughput" in p.ratios]
    places = range(len(known))
    values = [ratio.ratio for _, ratio in known]
    errors = [[r.ratio - r.low for _, r in known], [r.high - r.ratio for _, r in known]]
    panel.errorbar(places, values, yerr=errors, fmt="o", capsize=3)
    panel.axhline(1, color="gray", linewidth=0.8)
    panel.set_xticks(places, [p.load if dataset else f"{p.dataset}\n{p.load}" for p, _ in known], fontsize=7)
    panel.set_ylabel(f"output tok/s, {result.pairings[0].second} over {result.pairings[0].first}", fontsize=8)
    panel.grid(alpha=0.3)


def _plot(panel: Any, points: Sequence[tuple[float, float]], style: str, color: int, label: str) -> None:
    panel.plot([x for x, _ in points], [y for _, y in points], style, markersize=3, color=f"C{color}", label=label)


def _lines(axis: _ByLoad | _ByContext, cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(axis.line(cell), []).append(cell)
    return found
