"""Latency objectives: which requests count as served well enough."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from orchestration.bench.record import Record

LIMITED = ("ttft", "tpot", "e2el")


def parse(texts: Iterable[str]) -> dict[str, float]:
    """From "ttft:500" to limits in milliseconds.

    Raises ValueError for an unknown figure, one given twice, and a limit that is not positive.
    """
    limits: dict[str, float] = {}
    for text in texts:
        name, colon, value = text.partition(":")
        if name not in LIMITED or not colon:
            raise ValueError(
                f"goodput: {text!r} is not known; it must be NAME:MS with NAME one of {', '.join(LIMITED)}"
            )
        if name in limits:
            raise ValueError(f"goodput: {name} is limited twice; give each figure once")
        try:
            limit = float(value)
        except ValueError as error:
            raise ValueError(f"goodput: {value!r} is no number; it must be milliseconds, above 0") from error
        if not 0 < limit < math.inf:
            raise ValueError(f"goodput: {limit} is out of range; it must be milliseconds, above 0")
        limits[name] = limit
    return limits


def is_met(record: Record, limits_ms: Mapping[str, float]) -> bool:
    """Whether an answer came to its end within every limit. A figure that an answer of one token does not have is
    no reason against it."""
    if not record.is_ok:
        return False
    figures = {"ttft": record.ttft, "tpot": record.tpot, "e2el": record.e2el}
    return all((value := figures[name]) is None or value * 1e3 <= limit for name, limit in limits_ms.items())
