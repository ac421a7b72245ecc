"""When the requests of an open loop are sent. A closed loop has no such times: its clients wait for answers."""

from __future__ import annotations

import json
import math
import random
from itertools import accumulate
from pathlib import Path


def poisson(rate: float, count: int, seed: int, burstiness: float = 1.0) -> tuple[float, ...]:
    """Seconds from the start of `count` arrivals at a mean rate a second; the first at 0. An infinite rate sends all
    at once.

    Gaps follow a gamma distribution of shape `burstiness` and mean 1/rate: 1 is a Poisson process, less is burstier,
    more is steadier. Raises ValueError for a rate or burstiness that is not positive.
    """
    if not rate > 0:
        raise ValueError(f"request_rate: {rate} is out of range; it must be above 0")
    if not 0 < burstiness < math.inf:
        raise ValueError(f"burstiness: {burstiness} is out of range; it must be above 0 and finite")
    if math.isinf(rate):
        return (0.0,) * count
    rng = random.Random(seed)
    gaps = (rng.gammavariate(burstiness, 1.0 / (rate * burstiness)) for _ in range(count - 1))
    return (0.0, *accumulate(gaps))[:count]


def read_trace(path: Path, scale: float = 1.0) -> tuple[float, ...]:
    """Arrivals of a file, moved so that the first comes at 0, their times multiplied by `scale`.

    A line holds seconds as a number, or a JSON object with "timestamp" in milliseconds, as published traces of
    LLM services do. Raises ValueError, with the line's number, for anything else and for times that go backwards.
    """
    if not 0 < scale < math.inf:
        raise ValueError(f"trace_scale: {scale} is out of range; it must be above 0 and finite")
    times: list[float] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip():
            continue
        time = _seconds(line, f"{path}:{number}")
        if times and time < times[-1]:
            raise ValueError(f"{path}:{number}: {time} s comes before the line above; arrivals must be in order")
        times.append(time)
    if not times:
        raise ValueError(f"{path}: there is no arrival in it; one line a request is needed")
    return tuple((time - times[0]) * scale for time in times)


def _seconds(line: str, where: str) -> float:
    try:
        found = json.loads(line)
        time = float(found["timestamp"]) / 1e3 if isinstance(found, dict) else float(found)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f'{where}: {line[:40]!r} is no arrival; give seconds, or JSON with "timestamp" in milliseconds'
        ) from error
    if not math.isfinite(time):
        raise ValueError(f"{where}: {time} is out of range; an arrival must be finite")
    return time
