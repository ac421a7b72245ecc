"""What a drafter replica counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class DrafterMetrics:
    """Plain counters since start; read by reports and exporters."""

    streams: int = 0  # opened
    frames: int = 0
    unreadable_frames: int = 0  # not a frame at all, or out of bounds as a whole
    entries: int = 0
    opened: int = 0
    catch_ups: int = 0
    asks: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    shed: int = 0  # asks that were too late to be worth a draft
    faults: Counter[str] = field(default_factory=Counter)  # by fault code
    evicted: int = 0
    batches: int = 0
    failed_batches: int = 0
    failed_in_a_row: int = 0
    dropped_replies: int = 0  # the target did not read
    last_batch: int = 0  # sequences of the newest batch
    busy_s: float = 0.0
