"""Acceptance by position, one panel for each class, and learning curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from services.plotting import headless_pyplot
from services.training.evaluation.report import Result


def plot_acceptance(results: Sequence[Result], path: Path) -> None:
    """Raises ImportError without matplotlib."""
    pyplot = headless_pyplot()
    classes = list(dict.fromkeys(result.task_class for result in results))
    figure, axes = pyplot.subplots(1, len(classes), figsize=(4 * len(classes), 3.2), sharey=True, squeeze=False)
    for axis, task_class in zip(axes[0], classes, strict=True):
        for result in results:
            if result.task_class == task_class:
                acceptance = result.all.acceptance
                label = f"{result.drafter}, T={result.temperature:g}"
                style = "-o" if result.temperature == 0 else "--s"
                axis.plot(range(1, len(acceptance) + 1), acceptance, style, markersize=3, label=label)
        axis.set_title(task_class)
        axis.set_xlabel("draft position")
        axis.set_ylim(0, 1)
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("accepted, with all before")
    axes[0][-1].legend(fontsize=7)
    _save(pyplot, figure, path)


def plot_curves(curves: Mapping[str, Sequence[Mapping[str, float]]], path: Path) -> None:
    """Simulated accepted length over trained tokens, by drafter. Raises ImportError without matplotlib."""
    pyplot = headless_pyplot()
    figure, axis = pyplot.subplots(figsize=(5, 3.2))
    for name, points in curves.items():
        axis.plot(
            [p["tokens"] / 1e6 for p in points], [p["accepted_length"] for p in points], "-o", markersize=3, label=name
        )
    axis.set_xlabel("million tokens trained on")
    axis.set_ylabel("accepted length, simulated")
    axis.grid(alpha=0.3)
    axis.legend()
    _save(pyplot, figure, path)


def _save(pyplot: Any, figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
