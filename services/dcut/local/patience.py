"""How long a step should wait for drafts on their way, when other sequences could go ahead. Pure."""

from __future__ import annotations


def patience_s(expected_s: float, together_s: float, ready_s: float, pending_s: float) -> float:
    """Seconds from the ask.

    expected_s   from ask to answer
    together_s, ready_s, pending_s   step times of all, of those that could go, of those that wait
    Going in two steps costs ready + pending - together more of the target's time. Where that is more
    than the wait, one waits, and once the answer is overdue no longer than splitting would have cost.
    """
    split_s = max(ready_s + pending_s - together_s, 0.0)
    if expected_s >= split_s:
        return 0.0
    return expected_s + min(split_s, expected_s)
