"""Fair comparison of two things on a noisy machine: interleaved pairs and the interval of their ratio."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass

# Two-sided 95% quantiles of Student's t for 1, 2, ... degrees of freedom; further on, the last.
_T95 = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)


@dataclass(frozen=True, slots=True)
class Comparison:
    """a / b of each pair as a geometric mean with its 95% interval, and the medians themselves."""

    ratio: float
    low: float
    high: float
    median_a: float
    median_b: float
    pairs: int

    def __str__(self) -> str:
        return (
            f"{self.ratio:.2f}x [{self.low:.2f}, {self.high:.2f}] "
            f"({self.median_a:.1f} against {self.median_b:.1f}, {self.pairs} pairs)"
        )


def compare(run_a: Callable[[], float], run_b: Callable[[], float], pairs: int) -> Comparison:
    """Runs A B, B A, A B, ... so that drift of the machine falls on both. Each run returns its figure.

    Raises ValueError for fewer than 2 pairs.
    """
    if pairs < 2:
        raise ValueError(f"pairs: {pairs} is out of range; it must be at least 2")
    a_values, b_values = [], []
    for pair in range(pairs):
        for index in order(pair % 2, 2):
            if index == 0:
                a_values.append(run_a())
            else:
                b_values.append(run_b())
    return summarise(a_values, b_values)


def order(turn: int, count: int) -> list[int]:
    """In which order so many things are run in a turn: A B C, C B A, B C A, A C B, ...

    Two turns are one another's mirror, and every pair of turns begins elsewhere.
    """
    begin = (turn // 2) % count
    there = [*range(begin, count), *range(begin)]
    return there if turn % 2 == 0 else there[::-1]


def summarise(a_values: list[float], b_values: list[float]) -> Comparison:
    logs = [math.log(a / b) for a, b in zip(a_values, b_values, strict=True)]
    mean = statistics.mean(logs)
    count = len(logs)
    half = _T95[min(count - 1, len(_T95)) - 1] * statistics.stdev(logs) / math.sqrt(count)
    return Comparison(
        math.exp(mean),
        math.exp(mean - half),
        math.exp(mean + half),
        statistics.median(a_values),
        statistics.median(b_values),
        count,
    )
