"""All metrics of the fleet."""

from __future__ import annotations

from services.metrics.defined import drafter, fleet, gateway, router, target
from services.metrics.metric import Metric, Series, Value

GROUPS: dict[str, tuple[Metric, ...]] = {
    "Target": target.ALL,
    "Drafter": drafter.ALL,
    "Gateway": gateway.ALL,
    "Router": router.ALL,
    "Fleet": fleet.ALL,
}
METRICS: dict[str, Metric] = {metric.name: metric for group in GROUPS.values() for metric in group}


def metric_of(series: Series, value: Value) -> Metric:
    """The metric of a series. Raises ValueError for one that there is not, or a value of another shape."""
    metric = METRICS.get(series[0]) if series else None
    if metric is None:
        raise ValueError(f"series: {series[:1]} names no metric")
    if metric.series(series[1:]) != series:
        raise ValueError(f"{metric.name}: its labels may not be {series[1:]}")
    if len(value) != metric.width:
        raise ValueError(f"{metric.name}: {len(value)} numbers were given; it has {metric.width}")
    return metric
