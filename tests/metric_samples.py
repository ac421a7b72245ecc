"""What /metrics shows, as numbers by name and labels."""

from __future__ import annotations

from collections.abc import Mapping

import httpx
from prometheus_client.parser import text_string_to_metric_families

Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def fetched(url: str) -> Samples:
    async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
        reply = await http.get(f"{url}/metrics")
    reply.raise_for_status()
    return parsed(reply.text)


def total(samples: Samples, name: str, **labels: str) -> float:
    """Over all series of the name that have these labels."""
    wanted = set(labels.items())
    return sum(value for (known, of), value in samples.items() if known == name and wanted <= of)


def fallen(before: Samples, after: Samples) -> list[str]:
    """Totals that have become less, or are gone."""
    ends = ("_total", "_bucket", "_count", "_sum")
    return [
        f"{name}{dict(labels)}: {value} -> {after.get((name, labels))}"
        for (name, labels), value in before.items()
        if name.endswith(ends) and after.get((name, labels), -1.0) < value
    ]
