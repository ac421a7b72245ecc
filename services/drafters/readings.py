"""A drafter replica's numbers for the fleet's totals."""

from __future__ import annotations

from services.drafters.config import DrafterConfig
from services.drafters.server import DrafterServer
from services.metrics.defined import drafter as defined
from services.metrics.readings import Readings

_FAULT_PREFIX = "FAULT_CODE_"


def read_drafter(server: DrafterServer, config: DrafterConfig) -> Readings:
    readings, metrics, kind = Readings(), server.metrics, config.kind
    for metric, value in (
        (defined.BATCHES, metrics.batches),
        (defined.FAILED_BATCHES, metrics.failed_batches),
        (defined.BUSY_SECONDS, metrics.busy_s),
        (defined.BATCH_SEQUENCES, metrics.last_batch),
        (defined.ASKS, metrics.asks),
        (defined.DRAFTED, metrics.drafts),
        (defined.DRAFTED_TOKENS, metrics.draft_tokens),
        (defined.SHED, metrics.shed),
        (defined.OPENED, metrics.opened),
        (defined.EVICTED, metrics.evicted),
        (defined.PENDING_BYTES, server.num_pending_bytes),
        (defined.STREAMS, metrics.streams),
        (defined.DROPPED, metrics.unreadable_frames + metrics.dropped_replies),
    ):
        readings.put(metric, value, kind)
    readings.put(defined.SESSIONS, server.num_sessions, kind, "open")
    readings.put(defined.SESSIONS, server.num_reserved, kind, "reserved")
    readings.put(defined.SESSIONS, config.sessions.max_sessions, kind, "capacity")
    for code, count in metrics.faults.items():
        readings.put(defined.DRAFTER_FAULTS, count, kind, code.removeprefix(_FAULT_PREFIX).lower())
    return readings
