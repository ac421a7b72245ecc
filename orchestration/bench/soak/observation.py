"""What a running service looks like from outside at one moment, from its metrics and its processes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import httpx
import psutil
from prometheus_client.parser import text_string_to_metric_families

_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Observation:
    """`totals`: by name, added up over labels. Memory and descriptors by role, of replicas on this machine."""

    totals: Mapping[str, float]
    num_series: int
    memory_mib: Mapping[str, float]
    descriptors: Mapping[str, int]
    is_bitwise: bool  # every target promises the same text with drafts and without


@dataclass(frozen=True, slots=True)
class Point:
    """Figures of the time between two observations; None where nothing was counted."""

    seconds: float  # since the start
    figures: Mapping[str, float | None]


class Observer:
    """Of the service behind `url`, its HTTP API."""

    def __init__(self, url: str) -> None:
        self._client = httpx.AsyncClient(base_url=url, timeout=_TIMEOUT_S, trust_env=False)

    async def look(self) -> Observation:
        """Raises httpx.HTTPError when the service does not answer."""
        text = (await self._client.get("/metrics")).raise_for_status().text
        members = (await self._client.get("/status")).raise_for_status().json()["members"]
        totals: defaultdict[str, float] = defaultdict(float)
        num_series = 0
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                num_series += 1
                if "le" not in sample.labels:
                    totals[sample.name] += sample.value
        memory: defaultdict[str, float] = defaultdict(float)
        descriptors: defaultdict[str, int] = defaultdict(int)
        for member in members:
            role = f"{member['role']} {member['kind']}".strip()
            with suppress(psutil.Error):  # on another machine, or gone meanwhile
                process = psutil.Process(member["pid"])
                memory[role] += process.memory_info().rss / 2**20
                descriptors[role] += process.num_fds()
        targets = [member["exactness"] for member in members if member["role"] == "target"]
        is_bitwise = bool(targets) and set(targets) == {"bitwise"}
        return Observation(dict(totals), num_series, dict(memory), dict(descriptors), is_bitwise)

    async def close(self) -> None:
        await self._client.aclose()


def between(before: Observation, after: Observation, seconds: float, at: float) -> Point:
    """What happened in the `seconds` between the two, told as of `at`."""

    def grown(name: str) -> float:
        return after.totals.get(name, 0.0) - before.totals.get(name, 0.0)

    def mean(over: str, under: str) -> float | None:
        count = grown(under)
        return grown(over) / count if count else None

    figures: dict[str, float | None] = {
        "tokens a second": grown("draftfleet_generated_tokens_total") / seconds,
        "accepted length": mean("draftfleet_decode_tokens_total", "draftfleet_decode_rounds_total"),
        "accepted drafts": mean("draftfleet_accepted_tokens_total", "draftfleet_draft_tokens_total"),
        "first token, s": mean(
            "draftfleet_time_to_first_token_seconds_sum", "draftfleet_time_to_first_token_seconds_count"
        ),
        "between tokens, s": mean(
            "draftfleet_inter_token_latency_seconds_sum", "draftfleet_inter_token_latency_seconds_count"
        ),
        "series": float(after.num_series),
        **{f"memory of {role}, MiB": value for role, value in after.memory_mib.items()},
        **{f"descriptors of {role}": float(value) for role, value in after.descriptors.items()},
    }
    return Point(at, figures)
