"""A replica's counts beside its load reports, on the same way to the D-cut actor."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable

from services.metrics.messages import Counted, encode_counted
from services.metrics.metric import Series, Value
from services.metrics.readings import Readings

_log = logging.getLogger(__name__)


class CountReporter:
    """Tells what has changed since the actor last confirmed. Belongs to one event loop."""

    def __init__(self, read: Callable[[], Readings]) -> None:
        self._read = read
        self._incarnation = secrets.token_hex(8)
        self._confirmed: dict[Series, Value] = {}
        self._has_failed = False

    def message(self) -> tuple[bytes, dict[Series, Value]]:
        """A Counted as bytes, and what to confirm when it has arrived. Empty where nothing could be read."""
        try:
            readings = self._read()
        except Exception:  # counts must not cost a replica its place in the fleet
            if not self._has_failed:
                _log.exception("no counts of this replica could be read")
            self._has_failed = True
            return b"", {}
        self._has_failed = False
        changed = {}
        for series, value in readings.totals.items():
            before = self._confirmed.get(series, (0,) * len(value))
            if value != before:
                changed[series] = before, value
        sent = {series: now for series, (_, now) in changed.items()}
        return encode_counted(Counted(self._incarnation, changed, readings.gauges)), sent

    def confirm(self, sent: dict[Series, Value]) -> None:
        self._confirmed.update(sent)
