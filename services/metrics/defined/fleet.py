"""What is known of the fleet as a whole: by the D-cut actor, and by every replica's line to it."""

from __future__ import annotations

from services.metrics.labels import DRAFTER, ROLE
from services.metrics.metric import Label, Metric

_HOW = Label("how", ("stopped", "silent"))

REPLICAS = Metric("draftfleet_replicas", "sum", "Live replicas; 'none': not a drafter.", (ROLE, DRAFTER))
LEFT = Metric(
    "draftfleet_replicas_left", "total", "Replicas that said goodbye, and those that fell silent.", (ROLE, _HOW)
)
REPORTS = Metric("draftfleet_reports", "total", "Reports that reached the D-cut actor.", (ROLE,))
REFUSED_REPORTS = Metric("draftfleet_refused_reports", "total", "Reports that were malformed, or one too many.")
LINK_FAILURES = Metric("draftfleet_fleet_link_failures", "total", "Reports that brought no budget back.", (ROLE,))
WANTED = Metric("draftfleet_replicas_wanted", "sum", "Drafter replicas that the work calls for.", (DRAFTER,))
BUSY = Metric("draftfleet_drafters_busy_ratio", "max", "Share of the time in which a kind's replicas work.", (DRAFTER,))
PRICE = Metric(
    "draftfleet_draft_token_price_seconds",
    "max",
    "What a draft token must be worth to be asked for, in seconds of a target's time; above 0 drafters are short.",
    (DRAFTER,),
)
TOTALS_AGE = Metric(
    "draftfleet_totals_age_seconds", "max", "Age of the totals shown here; they rest while the D-cut actor is away."
)

ALL = (REPLICAS, LEFT, REPORTS, REFUSED_REPORTS, LINK_FAILURES, WANTED, BUSY, PRICE, TOTALS_AGE)
