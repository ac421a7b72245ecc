"""What one replica has to tell at a moment, series by series."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import TypeVar

from services.metrics.metric import Metric, Series, Value

_Labels = TypeVar("_Labels", bound="str | tuple[str, ...]")


class Readings:
    """Totals since the replica's start, and gauges. Labels of no known value are added up as `other`."""

    def __init__(self) -> None:
        self.totals: dict[Series, Value] = {}
        self.gauges: dict[Series, float] = {}

    def put(self, metric: Metric, value: float, *labels: str) -> None:
        """A total or a gauge."""
        series = metric.series(labels)
        if metric.is_cumulative:
            self._add(series, (value,))
        else:
            self.gauges[series] = self.gauges.get(series, 0.0) + value

    def put_all(self, metric: Metric, values: Mapping[_Labels, float]) -> None:
        """By label, or by labels. Safe while another thread adds to `values`."""
        for labels, value in dict(values).items():
            of: tuple[str, ...] = (labels,) if isinstance(labels, str) else labels
            self.put(metric, value, *of)

    def put_histogram(self, histogram: Histogram) -> None:
        for labels, counts in dict(histogram.counts).items():
            self._add(histogram.metric.series(labels), (*counts, histogram.sums[labels]))

    def _add(self, series: Series, value: Value) -> None:
        known = self.totals.get(series)
        self.totals[series] = value if known is None else tuple(a + b for a, b in zip(known, value, strict=True))


class Histogram:
    """Counts durations by bucket. Written by one thread; labels must be bounded by whoever observes."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.counts: dict[tuple[str, ...], list[int]] = {}
        self.sums: dict[tuple[str, ...], float] = {}

    def observe(self, value: float, *labels: str, times: int = 1) -> None:
        counts = self.counts.get(labels)
        if counts is None:
            self.sums[labels] = 0.0  # first: whoever sees the counts may ask for the sum
            counts = self.counts[labels] = [0] * (len(self.metric.bounds) + 1)
        counts[bisect_left(self.metric.bounds, value)] += times
        self.sums[labels] += value * times
