"""What a simulated policy came to. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from services.simulation.config import PolicyConfig, SimulationConfig
from services.simulation.fleet import Fleet


@dataclass(frozen=True, slots=True)
class Outcome:
    """Over the simulated time that counts; latencies in milliseconds, of requests that ended in it."""

    policy: str
    requests: int
    tokens_per_s: float
    goodput: float  # requests a second within both objectives
    accepted_length: float
    ttft_p50: float
    ttft_p99: float
    tpot_p50: float
    tpot_p99: float
    target_hours: float
    drafter_hours: float
    deaths: int
    resumed: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def simulate(config: SimulationConfig, policy: PolicyConfig) -> Outcome:
    """Runs one policy. The same configuration gives the same requests to every policy."""
    fleet = Fleet(config, policy)
    fleet.run()
    ended = fleet.finished.since(config.warm_up_s)
    ttft_N = np.array([1e3 * (r.first_s - r.arrived_s) for r in ended])
    tpot_N = np.array([1e3 * (r.ended_s - r.first_s) / max(r.answer - 1, 1) for r in ended])
    rounds = sum(request.rounds for request in ended)
    good = int(((ttft_N <= config.max_ttft_ms) & (tpot_N <= config.max_tpot_ms)).sum())
    return Outcome(
        policy.title,
        len(ended),
        sum(request.answer for request in ended) / config.seconds,
        good / config.seconds,
        sum(request.answer - 1 for request in ended) / rounds if rounds else 0.0,
        *_percentiles(ttft_N),
        *_percentiles(tpot_N),
        fleet.used.target_s / 3600,
        fleet.used.drafter_s / 3600,
        fleet.num_deaths,
        fleet.num_resumed,
    )


def _percentiles(values_N: np.ndarray[Any, np.dtype[np.float64]]) -> tuple[float, float]:
    if not len(values_N):
        return float("nan"), float("nan")
    p50, p99 = np.percentile(values_N, (50, 99)).tolist()
    return p50, p99
