"""Two result files compared, cell by cell."""

from __future__ import annotations

from dataclasses import dataclass

from orchestration.bench.report.figures import FIGURES
from orchestration.bench.report.tables import Table, number, title
from orchestration.bench.result import Cell, Result

_Key = tuple[str, ...]
_SHOWN = (
    "output_throughput",
    "goodput",
    "ttft_p50",
    "ttft_p99",
    "tpot_mean",
    "itl_p99",
    "e2el_mean",
    "accepted_length",
)


@dataclass(frozen=True, slots=True)
class Change:
    """One figure of one cell in both files; `ratio` is after / before."""

    figure: str
    before: float
    after: float

    @property
    def ratio(self) -> float:
        return self.after / self.before

    @property
    def is_better(self) -> bool:
        return self.ratio > 1 if FIGURES[self.figure].is_more_better else self.ratio < 1


def changes(before: Cell, after: Cell) -> list[Change]:
    """Of all figures that both cells have, above 0."""
    found = []
    for name, figure in FIGURES.items():
        old, new = figure.value(before.total), figure.value(after.total)
        if old and new:
            found.append(Change(name, old, new))
    return found


def matched(before: Result, after: Result) -> list[tuple[Cell, Cell]]:
    """Cells of the same arm, dataset and load. The arm's name does not count where each file has one.

    Raises ValueError when no cell has a partner.
    """
    both_single = len(before.arms) == len(after.arms) == 1
    old = {_key(cell, both_single): cell for cell in before.cells}
    new = {_key(cell, both_single): cell for cell in after.cells}
    pairs = [(cell, new[key]) for key, cell in old.items() if key in new]
    if not pairs:
        raise ValueError(f"the files have no cell in common: {_names(old)} against {_names(new)}")
    return pairs


def differences(before: Result, after: Result) -> Table:
    """Before, after and ratio of every figure of the cells in common. Raises ValueError when there is none."""
    rows = []
    for old, new in matched(before, after):
        for change in changes(old, new):
            if change.figure not in _SHOWN:
                continue
            rows.append(
                (
                    new.arm,
                    new.dataset,
                    new.load,
                    title(change.figure),
                    number(change.before),
                    number(change.after),
                    f"{change.ratio:.2f}x",
                    "better" if change.is_better else "worse" if change.ratio != 1 else "",
                )
            )
    columns = ("arm", "dataset", "load", "figure", "before", "after", "ratio", "")
    return Table("After over before", columns, 4, tuple(rows))


def warnings(before: Result, after: Result) -> list[str]:
    """Why the files may not be comparable."""
    found = []
    old_machine, new_machine = (r.machine.model_copy(update={"load_average": 0.0}) for r in (before, after))
    if old_machine != new_machine:
        found.append(f"other machines: {before.machine.processor} against {after.machine.processor}")
    if before.sources != after.sources:
        found.append(f"other prompts: {_words(before.sources)} against {_words(after.sources)}")
    for name in ("num_prompts", "num_warmups", "seed", "unique_prompts", "goodput_ms"):
        old, new = getattr(before.settings, name), getattr(after.settings, name)
        if old != new:
            found.append(f"other {name}: {old} against {new}")
    for old_arm, new_arm in zip(before.arms, after.arms, strict=False):
        asked = ("api", "max_tokens", "temperature", "top_p", "ignore_eos")
        for name in asked:
            if getattr(old_arm.arm, name) != getattr(new_arm.arm, name):
                found.append(f"other {name}: {getattr(old_arm.arm, name)} against {getattr(new_arm.arm, name)}")
        if old_arm.model != new_arm.model:
            found.append(f"other models: {old_arm.model} against {new_arm.model}")
    return found


def _key(cell: Cell, without_arm: bool) -> _Key:
    return (cell.dataset, cell.load) if without_arm else (cell.arm, cell.dataset, cell.load)


def _names(cells: dict[_Key, Cell]) -> str:
    return "; ".join(" ".join(key) for key in cells)


def _words(sources: dict[str, str]) -> str:
    return "; ".join(f"{name}: {source}" for name, source in sources.items())
