"""The labels that metrics share."""

from __future__ import annotations

from services.metrics.metric import Label

DRAFTER = Label("drafter", ("mtp", "dfly", "lookup", "none"))
CLASS = Label("class", ("chat", "code", "maths", "unknown"))
POSITION = Label("position", tuple(str(position) for position in range(16)))
ROLE = Label("role", ("gateway", "router", "target", "drafter"))
FAULT = Label("fault", ("unknown_session", "base_mismatch", "malformed", "full", "overloaded", "bad_lease"))
