"""A result as tables of text, for whatever shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestration.bench.report.figures import FIGURES
from orchestration.bench.result import Cell, Pairing, Ratio, Result
from orchestration.bench.summary import BURSTS, Summary

_SHOWN = (
    "output_throughput",
    "request_throughput",
    "goodput",
    "ttft_p50",
    "ttft_p99",
    "tpot_mean",
    "itl_p50",
    "itl_p99",
    "icl_p50",
    "e2el_mean",
    "accepted_length",
    "cached_share",
)
_PAIRED = ("output_throughput", "ttft_mean", "tpot_mean", "e2el_mean", "accepted_length")


@dataclass(frozen=True, slots=True)
class Table:
    """`num_names` columns at the left name a row; the others are figures."""

    title: str
    columns: tuple[str, ...]
    num_names: int
    rows: tuple[tuple[str, ...], ...]


def tables(result: Result) -> list[Table]:
    """Figures of all cells, then pairs of arms, then errors, each where there are any."""
    found = [_figures(result)]
    if result.pairings:
        found.append(_pairings(result.pairings))
    if any(cell.total.errors for cell in result.cells):
        found.append(_errors(result.cells))
    return found


def notes(result: Result) -> list[str]:
    """What a reader has to know to trust the figures."""
    lines = [f"{name}: prompts of {source}" for name, source in result.sources.items()]
    machine = result.machine
    lines.append(
        f"{result.date}, {machine.processor}, {machine.cores} cores, {machine.memory_gib:g} GiB, "
        f"{', '.join(machine.gpus) or 'no GPU'}, {machine.system}, load average {machine.load_average:g} before"
    )
    lines += [_arm_note(result, index) for index in range(len(result.arms))]
    totals = [cell.total for cell in result.cells]
    if any(total.cached_prompt_tokens for total in totals):
        lines.append("cached prompt: tokens that came from the server's prefix cache; --unique-prompts keeps it out")
    lines.append(BURSTS)
    if not all(total.are_tokens_told for total in totals):
        lines.append("an endpoint told no usage: each of its messages counts as one token")
    if any(total.drafting is not None for total in totals):
        lines.append(result.accepted_length)
    return lines


def number(value: float | None) -> str:
    """Three significant digits at least, and no more than the figure can mean."""
    if value is None:
        return ""
    size = abs(value)
    return f"{value:.0f}" if size >= 1000 else f"{value:.1f}" if size >= 100 else f"{value:.2f}"


def ratio(found: Ratio | None) -> str:
    return "" if found is None else f"{found.ratio:.2f}x [{found.low:.2f}, {found.high:.2f}]"


def title(name: str) -> str:
    figure = FIGURES[name]
    return f"{figure.title} {figure.unit}".strip()


def _figures(result: Result) -> Table:
    shown = [name for name in _SHOWN if any(FIGURES[name].value(cell.total) is not None for cell in result.cells)]
    columns = ("arm", "dataset", "load", "answers", *map(title, shown))
    rows = [
        (
            cell.arm,
            cell.dataset,
            cell.load,
            _answers(cell.total),
            *(number(FIGURES[n].value(cell.total)) for n in shown),
        )
        for cell in result.cells
    ]
    return Table("Figures", columns, 3, tuple(rows))


def _answers(total: Summary) -> str:
    return str(total.requests) if total.completed == total.requests else f"{total.completed} of {total.requests}"


def _pairings(pairings: Sequence[Pairing]) -> Table:
    shown = [name for name in _PAIRED if any(name in pairing.ratios for pairing in pairings)]
    firsts, second = dict.fromkeys(p.first for p in pairings), pairings[0].second
    rows = [
        (p.first, p.dataset, p.load, *(ratio(p.ratios.get(name)) for name in shown), f"{p.same_texts} of {p.texts}")
        for p in pairings
    ]
    count = max((r.pairs for p in pairings for r in p.ratios.values()), default=0)
    return Table(
        f"{second} over {', '.join(firsts)}: geometric mean of {count} pairs with 95% interval",
        ("over", "dataset", "load", *(FIGURES[name].title for name in shown), "same text"),
        3,
        tuple(rows),
    )


def _errors(cells: Sequence[Cell]) -> Table:
    rows = [
        (cell.arm, cell.dataset, cell.load, kind, str(count), cell.total.error_texts.get(kind, ""))
        for cell in cells
        for kind, count in cell.total.errors.items()
    ]
    return Table("Errors", ("arm", "dataset", "load", "kind", "requests", "the first"), 4, tuple(rows))


def _arm_note(result: Result, index: int) -> str:
    measured = result.arms[index]
    arm = measured.arm
    asked: dict[str, object] = {"max_tokens": arm.max_tokens, "temperature": arm.temperature, "seed": arm.seed}
    asked |= {"drafter": arm.drafter, "max_draft_tokens": arm.max_draft_tokens, "force": arm.force or None}
    words = [f"{key} {value}" for key, value in asked.items() if value is not None]
    words += ["ignore_eos"] if arm.ignore_eos else []
    said = [f"{key} {value}" for key, value in measured.facts.items() if isinstance(value, str)]
    return f"{arm.name}: {measured.model} at {arm.url} ({arm.api}), {', '.join(words + said)}"
