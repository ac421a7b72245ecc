"""The fleet's totals in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family

from services.metrics.catalogue import METRICS
from services.metrics.defined.fleet import TOTALS_AGE
from services.metrics.defined.target import KV_BLOCKS
from services.metrics.messages import Snapshot
from services.metrics.metric import Metric, Series, Value
from services.metrics.vllm import ALIASES, KV_USAGE, KV_USAGE_HELP, PREFIX, Alias

_Rows = Mapping[tuple[str, ...], Value]  # by the values of the labels
_MODEL_LABELS = ("model_name", "engine")


class _Collector:
    """Metrics without labels are shown from the start, so that their first step is seen as one."""

    def __init__(self, snapshot: Snapshot, model_name: str, age_s: float) -> None:
        self._values: dict[Series, Value] = {
            **snapshot.totals,
            **{series: (value,) for series, value in snapshot.gauges.items()},
            (TOTALS_AGE.name,): (age_s,),
        }
        self._model = (model_name, "0")

    def collect(self) -> Iterator[Family]:
        for metric in METRICS.values():
            yield _family(metric.name, metric, [label.name for label in metric.labels], self._rows(metric))
        for alias in ALIASES:
            labels = (*_MODEL_LABELS, *(alias.keep[:1] if alias.keep else ()))
            rows = {(*self._model, *kept): value for kept, value in self._joined(alias).items()}
            yield _family(f"{PREFIX}{alias.name}", alias.of, labels, rows)
        held, free = (self._values.get((KV_BLOCKS.name, state), (0.0,))[0] for state in ("held", "free"))
        usage = GaugeMetricFamily(KV_USAGE, KV_USAGE_HELP, labels=_MODEL_LABELS)
        usage.add_metric(self._model, held / max(held + free, 1.0))
        yield usage

    def _rows(self, metric: Metric) -> dict[tuple[str, ...], Value]:
        rows = {series[1:]: value for series, value in self._values.items() if series[0] == metric.name}
        if not rows and not metric.labels:
            rows[()] = (0.0,) * metric.width
        return dict(sorted(rows.items()))

    def _joined(self, alias: Alias) -> dict[tuple[str, ...], Value]:
        names = [label.name for label in alias.of.labels]
        at = [names.index(alias.keep[1])] if alias.keep else []
        joined: dict[tuple[str, ...], Value] = {} if at else {(): (0.0,) * alias.of.width}
        for labels, value in self._rows(alias.of).items():
            kept = tuple(labels[index] for index in at)
            known = joined.get(kept, (0.0,) * len(value))
            joined[kept] = tuple(a + b for a, b in zip(known, value, strict=True))
        return joined


def render(snapshot: Snapshot, model_name: str, age_s: float) -> bytes:
    """`age_s`: of the snapshot, in seconds."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(snapshot, model_name, age_s))
    return generate_latest(registry)


def _family(name: str, metric: Metric, labels: Sequence[str], rows: _Rows) -> Family:
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(name, metric.help, labels=labels)
        for values, numbers in rows.items():
            histogram.add_metric(values, _buckets(metric.bounds, numbers), numbers[-1])
        return histogram
    family: CounterMetricFamily | GaugeMetricFamily
    family = CounterMetricFamily(name, metric.help, labels=labels)
    if metric.kind != "total":
        family = GaugeMetricFamily(name, metric.help, labels=labels)
    for values, (number,) in rows.items():
        family.add_metric(values, number)
    return cast(Family, family)


def _buckets(bounds: Sequence[float], numbers: Value) -> list[tuple[str, float]]:
    """(upper end, how many were no greater), the last without end."""
    buckets, below = [], 0.0
    for end, count in zip((*(str(bound) for bound in bounds), "+Inf"), numbers, strict=False):
        below += count
        buckets.append((end, below))
    return buckets
