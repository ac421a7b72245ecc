"""What drafter replicas count."""

from __future__ import annotations

from services.metrics.labels import DRAFTER, FAULT
from services.metrics.metric import Label, Metric

_BY = (DRAFTER,)
_STATE = Label("state", ("open", "reserved", "capacity"))

BATCHES = Metric("draftfleet_drafter_batches", "total", "Batches drafted.", _BY)
FAILED_BATCHES = Metric("draftfleet_drafter_failed_batches", "total", "Batches that broke off with an error.", _BY)
BUSY_SECONDS = Metric("draftfleet_drafter_busy_seconds", "total", "Seconds spent in batches.", _BY)
BATCH_SEQUENCES = Metric("draftfleet_drafter_batch_sequences", "max", "Sequences of the newest batch.", _BY)
ASKS = Metric("draftfleet_drafter_asks", "total", "Drafts that targets asked for.", _BY)
DRAFTED = Metric("draftfleet_drafter_drafts", "total", "Drafts made. Over batches: sequences a batch.", _BY)
DRAFTED_TOKENS = Metric("draftfleet_drafter_draft_tokens", "total", "Tokens of those drafts.", _BY)
SHED = Metric("draftfleet_drafter_drafts_shed", "total", "Asks too late to be worth a draft.", _BY)
OPENED = Metric("draftfleet_drafter_sessions_opened", "total", "Sequences opened.", _BY)
EVICTED = Metric("draftfleet_drafter_sessions_evicted", "total", "Idle sequences forgotten for others.", _BY)
SESSIONS = Metric(
    "draftfleet_drafter_sessions", "sum", "Sequences open, places reserved, and most of both.", (DRAFTER, _STATE)
)
PENDING_BYTES = Metric("draftfleet_drafter_pending_bytes", "sum", "Input that waits for the next batch, in bytes.", _BY)
STREAMS = Metric("draftfleet_drafter_streams", "total", "Streams that targets opened.", _BY)
DRAFTER_FAULTS = Metric("draftfleet_drafter_faults", "total", "Faults answered to targets.", (DRAFTER, FAULT))
DROPPED = Metric(
    "draftfleet_drafter_dropped_frames", "total", "Frames unreadable, or replies that a target did not read.", _BY
)

ALL = (
    BATCHES,
    FAILED_BATCHES,
    BUSY_SECONDS,
    BATCH_SEQUENCES,
    ASKS,
    DRAFTED,
    DRAFTED_TOKENS,
    SHED,
    OPENED,
    EVICTED,
    SESSIONS,
    PENDING_BYTES,
    STREAMS,
    DRAFTER_FAULTS,
    DROPPED,
)
