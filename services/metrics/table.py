"""Writes METRICS.md beside this file: python -m services.metrics.table"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from services.metrics.catalogue import GROUPS, METRICS
from services.metrics.metric import OTHER, Metric
from services.metrics.vllm import ALIASES, KV_USAGE

PATH = Path(__file__).with_name("METRICS.md")
_INTRODUCTION = """\
# Metrics

Written by `python -m services.metrics.table`; a test keeps it true.

`GET /metrics` of any gateway tells the totals of the whole fleet: what replicas have counted that are gone is part of
them, so no total falls. Gauges are of live replicas, joined as the table says.
"""
_VLLM = """\
## vLLM's names

The same numbers again, with the labels `model_name` and `engine`, for dashboards and tools that look for these names.
"""


def table() -> str:
    """All metrics as Markdown."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    for group, metrics in GROUPS.items():
        yield f"## {group}\n"
        yield "| name | type | labels | meaning |"
        yield "|---|---|---|---|"
        for metric in metrics:
            yield f"| `{metric.shown}` | {_type(metric)} | {_labels(metric)} | {metric.help} |"
        yield ""
    yield _VLLM
    yield "| name | the same as |"
    yield "|---|---|"
    for alias in ALIASES:
        kept = f" by `{alias.keep[1]}`, there `{alias.keep[0]}`" if alias.keep else ""
        yield f"| `{alias.shown}` | `{alias.of.shown}`{kept} |"
    yield f"| `{KV_USAGE}` | share of `draftfleet_kv_blocks` that is held, from 0 to 1 |"
    yield ""
    yield "## Values of labels\n"
    yield f"Anything else is told as `{OTHER}`. So there are never more than {_most()} combinations.\n"
    yield "| label | values |"
    yield "|---|---|"
    values = {(label.name, label.values) for metric in METRICS.values() for label in metric.labels}
    for name, allowed in sorted(values):
        yield f"| `{name}` | {', '.join(allowed)} |"


def _type(metric: Metric) -> str:
    return metric.type if metric.is_cumulative else f"gauge ({metric.kind})"


def _labels(metric: Metric) -> str:
    return ", ".join(f"`{label.name}`" for label in metric.labels) or "-"


def _most() -> int:
    return sum(metric.max_series for metric in METRICS.values())


if __name__ == "__main__":
    PATH.write_text(table(), encoding="utf-8")
