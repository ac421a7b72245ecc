"""A router replica's numbers for the fleet's totals."""

from __future__ import annotations

from services.metrics.defined import router as defined
from services.metrics.readings import Readings
from services.router.router import Router


def read_router(router: Router) -> Readings:
    readings = Readings()
    readings.put_all(defined.ROUTES, router.routes)
    readings.put_histogram(router.seconds)
    readings.put(defined.FAILED_RESERVATIONS, router.failed_reservations)
    return readings
