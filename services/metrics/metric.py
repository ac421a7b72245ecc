"""What a metric is: name, meaning, labels of known values, and how replicas' values become the fleet's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# Totals are added up and never fall. A gauge holds now: added up, the greatest, or the mean over live replicas.
Kind = Literal["total", "histogram", "sum", "max", "mean"]
OTHER = "other"

# A metric's name and the values of its labels.
Series = tuple[str, ...]
# A total or gauge has one number; a histogram its bucket counts, those above the last bound, and the sum.
Value = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Label:
    """`values` are all there are: anything else is told as `other`, so nobody can add series without end."""

    name: str
    values: tuple[str, ...]

    def bounded(self, value: str) -> str:
        return value if value in self.values else OTHER


@dataclass(frozen=True, slots=True)
class Metric:
    """`name` as Prometheus shows it, without the `_total` that it adds to totals."""

    name: str
    kind: Kind
    help: str
    labels: tuple[Label, ...] = ()
    bounds: tuple[float, ...] = ()  # upper ends of a histogram's buckets, rising

    @property
    def shown(self) -> str:
        return f"{self.name}_total" if self.kind == "total" else self.name

    @property
    def type(self) -> str:
        """Prometheus' word for it."""
        return {"total": "counter", "histogram": "histogram"}.get(self.kind, "gauge")

    @property
    def is_cumulative(self) -> bool:
        return self.kind in ("total", "histogram")

    @property
    def width(self) -> int:
        """Numbers in a value."""
        return len(self.bounds) + 2 if self.kind == "histogram" else 1

    @property
    def max_series(self) -> int:
        count = 1
        for label in self.labels:
            count *= len(label.values) + 1
        return count

    def series(self, labels: tuple[str, ...]) -> Series:
        """Raises ValueError when the number of labels is another one."""
        if len(labels) != len(self.labels):
            names = ", ".join(label.name for label in self.labels) or "none"
            raise ValueError(f"{self.name}: {len(labels)} labels were given; it has these: {names}")
        return self.name, *(label.bounded(value) for label, value in zip(self.labels, labels, strict=True))
