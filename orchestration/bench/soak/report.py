"""What came of a soak: flat or not, in words, as JSON and as a picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from orchestration.bench.soak.load import Seen
from orchestration.bench.soak.observation import Point
from orchestration.bench.soak.trend import Limit, Trend, trend
from services.plotting import headless_pyplot

_COLUMNS = 3


@dataclass(frozen=True, slots=True)
class Report:
    points: Sequence[Point]
    trends: dict[str, Trend | None]
    seen: Seen
    is_bitwise: bool

    @property
    def is_good(self) -> bool:
        """Nothing drifts, nothing failed, and no greedy text has changed where the service promises that."""
        is_flat = all(found is None or found.is_flat for found in self.trends.values())
        return is_flat and not self.seen.errors and not (self.is_bitwise and self.seen.other)


def limit_of(figure: str) -> Limit:
    """Drift that is still called flat."""
    if figure.startswith("memory"):
        return Limit("up", 0.05, amount=8.0)
    if figure.startswith("descriptors"):
        return Limit("up", 0.0, amount=8.0)
    if figure == "series":
        return Limit("up", 0.05)
    if figure.endswith(", s"):
        return Limit("up", 0.25)
    return Limit("down", 0.25 if figure == "tokens a second" else 0.1)


def report(points: Sequence[Point], seen: Seen, *, is_bitwise: bool) -> Report:
    seconds = [point.seconds for point in points]
    names = dict.fromkeys(name for point in points for name in point.figures)
    trends = {name: trend(seconds, [point.figures.get(name) for point in points], limit_of(name)) for name in names}
    return Report(points, trends, seen, is_bitwise)


def lines(result: Report) -> list[str]:
    """A line each: figure, median, drift, verdict."""
    seen = result.seen
    promised = "bitwise" if result.is_bitwise else "ties"
    told = [
        f"{seen.finished} answers, {seen.abandoned} abandoned, {sum(seen.errors.values())} errors {dict(seen.errors)}",
        f"{seen.same} greedy answers as they were before, {seen.other} others ({promised})",
    ]
    for name, found in result.trends.items():
        if found is None:
            told.append(f"{name}: too few values to tell")
            continue
        verdict = "flat" if found.is_flat else "NOT FLAT"
        told.append(f"{name}: median {found.median:.4g}, drift {found.drift:+.3g} of {found.allowed:.3g}: {verdict}")
    return told


def save_json(result: Report, path: Path) -> None:
    seen = result.seen
    body = {
        "is_good": result.is_good,
        "finished": seen.finished,
        "abandoned": seen.abandoned,
        "errors": dict(seen.errors),
        "same_texts": seen.same,
        "other_texts": seen.other,
        "trends": {name: None if found is None else asdict(found) for name, found in result.trends.items()},
        "points": [asdict(point) for point in result.points],
    }
    path.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")


def save_png(result: Report, path: Path) -> None:
    """Raises ImportError without matplotlib."""
    pyplot = headless_pyplot()
    rows = -(-len(result.trends) // _COLUMNS)
    figure, axes = pyplot.subplots(
        rows, _COLUMNS, figsize=(4.2 * _COLUMNS, 2.2 * rows), squeeze=False, layout="constrained"
    )
    minutes = [point.seconds / 60 for point in result.points]
    for axis in axes.flat[len(result.trends) :]:
        axis.set_visible(False)
    for axis, (name, found) in zip(axes.flat, result.trends.items(), strict=False):
        values = [point.figures.get(name) for point in result.points]
        axis.plot(minutes, values, marker=".", linewidth=1)
        axis.set_title(name if found is None or found.is_flat else f"{name}: NOT FLAT", fontsize=9)
        axis.set_ylim(0, 1.15 * max((value for value in values if value is not None), default=0.0) or 1.0)
        axis.tick_params(labelsize=7)
    figure.supxlabel("minutes", fontsize=8)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
