"""Judges what drafters answer: nothing is believed that was not asked for."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping

from protos import drafting_pb2 as pb
from services.dcut.costs.drafts import DraftWait
from services.target.drafting.config import DraftingConfig
from services.target.drafting.counters import DraftingCounters
from services.target.drafting.remote import Inbound
from services.target.drafting.sequence import DraftedSequence
from services.target.drafting.state import DraftReply, Outcome

_log = logging.getLogger(__name__)
_MAX_ENTRIES = 4096
_MAX_WAITS = 256
_LOST = (pb.FAULT_CODE_UNKNOWN_SESSION, pb.FAULT_CODE_BASE_MISMATCH)


class AnswerDesk:
    """Takes reply frames in the engine's thread and moves the sequences' states on."""

    def __init__(
        self,
        config: DraftingConfig,
        vocabulary: int,
        sequences: Mapping[int, DraftedSequence],
        counters: DraftingCounters,
    ) -> None:
        self._vocabulary = vocabulary
        self._sequences = sequences
        self._counters = counters
        self._min_pause_s = config.min_backoff_s
        self._max_pause_s = config.max_backoff_s
        self._waits: deque[DraftWait] = deque(maxlen=_MAX_WAITS)

    def take_waits(self) -> list[DraftWait]:
        """Answered frames since the last call, at most the newest 256."""
        waits = list(self._waits)
        self._waits.clear()
        return waits

    def receive(self, inbound: Inbound) -> None:
        reply, link = inbound.reply, inbound.link
        if len(reply.entries) > _MAX_ENTRIES:
            self._counters.unreadable_frames += 1
            return
        if inbound.generation != link.state.generation:
            self._counters.stale += len(reply.entries)
            return
        asked, traits = link.waits.answered(reply.frame, inbound.arrived), link.traits
        if asked is not None and traits is not None and any(entry.HasField("draft") for entry in reply.entries):
            wait_s = max(inbound.arrived - asked.sent, 0.0)
            busy_s = min(reply.busy_us / 1e6, wait_s)
            self._waits.append(DraftWait(traits.kind, asked.sequences, asked.longest, wait_s, busy_s, inbound.arrived))
        for entry in reply.entries:
            sequence = self._sequences.get(entry.sequence)
            if sequence is None or sequence.link is not link or sequence.generation != inbound.generation:
                self._counters.unknown += 1
            elif entry.HasField("draft"):
                self._draft(sequence, entry, inbound.arrived)
            elif entry.HasField("fault"):
                self._fault(sequence, entry, inbound.arrived)
            else:
                self._counters.malformed += 1

    def _draft(self, sequence: DraftedSequence, entry: pb.ReplyEntry, arrived: float) -> None:
        draft = entry.draft
        reply = DraftReply(entry.epoch, entry.base, tuple(draft.tokens), tuple(draft.probabilities))
        outcome = sequence.state.on_draft(reply, arrived, self._vocabulary)
        counters = self._counters
        if outcome is Outcome.DRAFTED:
            counters.drafts += 1
            counters.draft_tokens += len(reply.tokens)
            sequence.succeed()
        elif outcome is Outcome.STALE:
            counters.stale += 1
        elif outcome is Outcome.LATE:
            counters.late += 1
        else:
            counters.malformed += 1

    def _fault(self, sequence: DraftedSequence, entry: pb.ReplyEntry, now: float) -> None:
        state = sequence.state
        if entry.epoch != state.epoch or state.held is None:
            self._counters.stale += 1
            return
        code = entry.fault.code
        if code not in pb.FaultCode.values() or code == pb.FAULT_CODE_UNSPECIFIED:
            self._counters.malformed += 1
            return
        if code == pb.FAULT_CODE_OVERLOADED and not state.on_shed(entry.epoch, entry.base):
            self._counters.stale += 1
            return
        self._counters.faults[pb.FaultCode.Name(code)] += 1
        if code == pb.FAULT_CODE_OVERLOADED:
            return
        state.lose()
        if code in _LOST:
            self._counters.lost += 1
            sequence.fail(now, self._min_pause_s, self._max_pause_s)
        elif code == pb.FAULT_CODE_BAD_LEASE:
            sequence.lease_token = b""
        else:
            if code == pb.FAULT_CODE_MALFORMED:
                # The detail is written by the drafter and names no prompt text.
                _log.error("a drafter could not read what it was sent: %.200s", entry.fault.detail)
            sequence.avoid(now + self._max_pause_s)
