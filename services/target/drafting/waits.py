"""How long to wait for a drafter's answer, learned from its answers. Pure."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

_SMOOTHING = 0.1
_DEVIATIONS = 4.0
_MAX_OPEN_FRAMES = 256


@dataclass(slots=True)
class AskedFrame:
    """A frame with asks in it."""

    sent: float
    sequences: int = 0
    longest: int = 0  # most draft tokens asked of one


class WaitTracker:
    """Times frames of one connection, and tells when it has gone quiet."""

    def __init__(self, min_s: float, max_s: float) -> None:
        self._min_s = min_s
        self._max_s = max_s
        self._mean_s: float | None = None
        self._deviation_s = 0.0
        self._sent: OrderedDict[int, AskedFrame] = OrderedDict()
        self._unanswered_since: float | None = None

    @property
    def mean_s(self) -> float | None:
        """Smoothed time from ask to answer; None before the first."""
        return self._mean_s

    @property
    def allowance_s(self) -> float:
        """How long the next answer may take."""
        if self._mean_s is None:
            return self._max_s
        return min(max(self._mean_s + _DEVIATIONS * self._deviation_s, self._min_s), self._max_s)

    def asked(self, frame: int, count: int, now: float) -> None:
        """A sequence is asked for `count` tokens in that frame."""
        entry = self._sent.setdefault(frame, AskedFrame(now))
        entry.sequences += 1
        entry.longest = max(entry.longest, count)
        if len(self._sent) > _MAX_OPEN_FRAMES:
            self._sent.popitem(last=False)
        if self._unanswered_since is None:
            self._unanswered_since = now

    def answered(self, frame: int, arrived: float) -> AskedFrame | None:
        """An answer, late ones too: they tell how long to wait. None where the frame was not waited for."""
        if frame not in self._sent:
            return None
        # Frames are answered in order: an older one without an answer will get none.
        older = self._sent.popitem(last=False)
        while older[0] != frame:
            older = self._sent.popitem(last=False)
        asked = older[1]
        oldest = next(iter(self._sent.values()), None)
        self._unanswered_since = None if oldest is None else oldest.sent
        wait = max(arrived - asked.sent, 0.0)
        if self._mean_s is None:
            self._mean_s, self._deviation_s = wait, wait / 2
            return asked
        error = wait - self._mean_s
        self._mean_s += _SMOOTHING * error
        self._deviation_s += _SMOOTHING * (abs(error) - self._deviation_s)
        return asked

    def silence_s(self, now: float) -> float:
        """For how long the oldest open ask has had no answer."""
        return 0.0 if self._unanswered_since is None else max(now - self._unanswered_since, 0.0)

    def forget(self) -> None:
        """The connection is new; what was learned of its speed stays."""
        self._sent.clear()
        self._unanswered_since = None
