"""The Serve handle of the D-cut actor, as a replica's line to it uses it."""

from __future__ import annotations

from typing import Any

from ray.serve.handle import DeploymentHandle

from services.dcut.link import Exchange


def exchange_with(dcut: DeploymentHandle[Any]) -> Exchange:
    """Sends a report and brings the budget back."""
    # By value: a reference into the object store would cost another round trip.
    report = dcut.report.options(_by_reference=False)

    async def exchange(data: bytes) -> bytes:
        reply: bytes = await report.remote(data)
        return reply

    return exchange
