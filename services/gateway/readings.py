"""A gateway replica's numbers for the fleet's totals."""

from __future__ import annotations

from services.gateway.gateway import Gateway
from services.metrics.defined import gateway as defined
from services.metrics.messages import Snapshot
from services.metrics.readings import Readings


def read_gateway(gateway: Gateway) -> Readings:
    readings, metrics = Readings(), gateway.metrics
    readings.put_all(defined.REQUESTS, metrics.requests)
    readings.put_all(defined.ERRORS, metrics.errors)
    readings.put_all(defined.CHOICES, metrics.choices)
    for histogram in (metrics.first_token, metrics.inter_token, metrics.seconds):
        readings.put_histogram(histogram)
    readings.put(defined.ACTIVE, gateway.admission.active)
    readings.put(defined.LOST_ATTEMPTS, gateway.targets.lost_attempts)
    readings.put(defined.RETRIES, gateway.targets.retries)
    readings.put(defined.RESUMES, gateway.targets.resumes)
    readings.put(defined.FAILED_ROUTES, gateway.targets.failed_routes)
    return readings


def own_snapshot(gateway: Gateway) -> Snapshot:
    """As if this gateway were the whole fleet."""
    readings = read_gateway(gateway)
    return Snapshot("gateway", 0, True, readings.totals, readings.gauges)
