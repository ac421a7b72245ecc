"""What router replicas count."""

from __future__ import annotations

from services.metrics.labels import CLASS, DRAFTER
from services.metrics.metric import Label, Metric

_ASKED = Label("asked", ("auto", "mtp", "dfly", "lookup", "none"))

ROUTES = Metric(
    "draftfleet_routes",
    "total",
    "Requests by class, drafter asked for and drafter chosen; 'none': no place was free, the target is left to itself.",
    (CLASS, _ASKED, DRAFTER),
)
ROUTE_SECONDS = Metric(
    "draftfleet_route_seconds",
    "histogram",
    "Time to choose a drafter and reserve its place, in seconds.",
    (),
    (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0),
)
FAILED_RESERVATIONS = Metric(
    "draftfleet_failed_reservations", "total", "Places at drafters that could not be reserved."
)

ALL = (ROUTES, ROUTE_SECONDS, FAILED_RESERVATIONS)
