"""Draws a target's step times and how often its drafts stand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from services.plotting import headless_pyplot


def plot_costs(target: dict[str, Any], path: Path) -> None:
    """`target`: a D-cut snapshot as the status gives it. Raises ImportError without matplotlib."""
    pyplot = headless_pyplot()
    figure, (steps, drafts) = pyplot.subplots(1, 2, figsize=(11, 4))
    for line in target["lines"]:
        label = f"context {line['context']}" + (f" beside {line['prefill']} prompt rows" if line["prefill"] else "")
        (drawn,) = steps.plot(line["rows"], line["expected_ms"], "-o", markersize=3, label=label)
        steps.plot(line["rows"], line["measured_ms"], ":", color=drawn.get_color())
    steps.set_xscale("log", base=2)
    steps.set_yscale("log")
    steps.set_xlabel("decoding rows")
    steps.set_ylabel("ms a step (dotted: at start-up)")
    for entry in target["acceptance"]:
        positions = range(1, len(entry["acceptance"]) + 1)
        drafts.plot(positions, entry["acceptance"], "-o", markersize=3, label=f"{entry['kind']} {entry['task_class']}")
    drafts.set_ylim(0, 1)
    drafts.set_xlabel("draft position")
    drafts.set_ylabel("accepted, given those before")
    for axis in (steps, drafts):
        axis.grid(alpha=0.3)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
