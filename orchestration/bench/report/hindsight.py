"""The last arm against the best of the others at each load: what one would have chosen, had one known."""

from __future__ import annotations

from orchestration.bench.report.tables import Table, ratio
from orchestration.bench.result import Cell, Pairing, Result


def hindsight(result: Result) -> Table:
    """Needs a result of several arms. Arms are compared by output throughput.

    The best of many noisy arms looks better than it is, so the last one is told a little too low.
    """
    rows = []
    for (dataset, load), pairings in _by_cell(result).items():
        speeds = {cell.arm: cell.total.output_throughput for cell in _cells(result, dataset, load)}
        best = max(pairings, key=lambda pairing: speeds[pairing.first])
        rows.append((dataset, load, best.first, ratio(best.ratios.get("output_throughput"))))
    last = result.arms[-1].arm.name
    return Table(
        f"{last} over the best of the others in hindsight", ("dataset", "load", "best", "output tok/s"), 3, tuple(rows)
    )


def _by_cell(result: Result) -> dict[tuple[str, str], list[Pairing]]:
    found: dict[tuple[str, str], list[Pairing]] = {}
    for pairing in result.pairings:
        found.setdefault((pairing.dataset, pairing.load), []).append(pairing)
    return found


def _cells(result: Result, dataset: str, load: str) -> list[Cell]:
    return [cell for cell in result.cells if (cell.dataset, cell.load) == (dataset, load)]
