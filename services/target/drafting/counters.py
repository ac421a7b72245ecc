"""What the desk counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class DraftingCounters:
    """Plain counters since start."""

    asks: int = 0  # sent to a drafter replica
    drafts: int = 0  # accepted answers, empty ones included
    draft_tokens: int = 0
    local_drafts: int = 0
    skipped: int = 0  # no drafter could be asked
    missed: int = 0  # not answered in time
    late: int = 0  # answered after that
    stale: int = 0  # answers to something else than the newest ask
    malformed: int = 0  # answers that break the protocol's bounds
    unknown: int = 0  # answers for sequences that do not exist
    unused: int = 0  # drafts whose sequence had moved on
    faults: Counter[str] = field(default_factory=Counter)  # by fault code
    opens: int = 0
    catch_ups: int = 0
    lost: int = 0  # sequences whose drafter state was lost
    connects: int = 0
    disconnects: int = 0
    unreadable_frames: int = 0
    dropped_frames: int = 0  # unsent or unread because of a full queue
    refused_leases: int = 0  # more connections than allowed
