"""The figures that tables, comparisons and plots show: what each is called and which direction is better."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from orchestration.bench.summary import Distribution, Summary


@dataclass(frozen=True, slots=True)
class Figure:
    """`value` gives None where a load has no such figure."""

    name: str
    title: str
    unit: str
    is_more_better: bool
    value: Callable[[Summary], float | None]


def _latency(name: str, statistic: str) -> Figure:
    def value(summary: Summary) -> float | None:
        found: Distribution | None = getattr(summary, name)
        return None if found is None else float(getattr(found, statistic))

    return Figure(f"{name}_{statistic}", f"{name.upper()} {statistic}", "ms", False, value)


def _accepted_length(summary: Summary) -> float | None:
    if summary.drafting is None or math.isnan(summary.drafting.accepted_length):
        return None
    return summary.drafting.accepted_length


def _cached_share(summary: Summary) -> float | None:
    if not summary.cached_prompt_tokens:
        return None
    return 100 * summary.cached_prompt_tokens / summary.prompt_tokens


FIGURES = {
    figure.name: figure
    for figure in (
        Figure("output_throughput", "output", "tok/s", True, lambda s: s.output_throughput),
        Figure("request_throughput", "requests", "/s", True, lambda s: s.request_throughput),
        Figure("goodput", "goodput", "/s", True, lambda s: s.goodput),
        *(_latency("ttft", statistic) for statistic in ("mean", "p50", "p99")),
        *(_latency("tpot", statistic) for statistic in ("mean", "p50", "p99")),
        *(_latency("itl", statistic) for statistic in ("p50", "p95", "p99")),
        *(_latency("icl", statistic) for statistic in ("p50", "p99")),
        *(_latency("e2el", statistic) for statistic in ("mean", "p99")),
        _latency("delay", "p50"),
        Figure("cached_share", "cached prompt", "%", True, _cached_share),
        Figure("accepted_length", "accepted length", "", True, _accepted_length),
    )
}
