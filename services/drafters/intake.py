"""Admits the entries of target frames: checks each against its session and queues it for the next batch."""

from __future__ import annotations

from dataclasses import dataclass

from protos import drafting_pb2 as pb
from services.drafters.drafter import Features, Opening, Question, Traits
from services.drafters.metrics import DrafterMetrics
from services.drafters.rounds import Ask, Pending, ReplyTo
from services.drafters.sessions import Session, SessionTable, TableFull, UnknownLease
from services.drafters.validation import EntryFault, check_open, checked_features, checked_tokens, malformed

_NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Caller:
    """The target replica behind a stream, as its hello told."""

    stream: int
    replica: str
    vocabulary: int
    hidden_size: int


class Intake:
    """One entry's fault never touches another sequence; all methods run on the event loop."""

    def __init__(self, traits: Traits, table: SessionTable, metrics: DrafterMetrics) -> None:
        self._traits = traits
        self._table = table
        self._metrics = metrics
        self.pending = Pending()
        self.is_draining = False

    def admit(self, caller: Caller, frame: pb.Round, now: float) -> list[pb.ReplyEntry]:
        """Queues what is sound; returns a fault for each entry that is not."""
        faults = []
        for entry in frame.entries:
            self._metrics.entries += 1
            try:
                self._admit(caller, frame.frame, entry, now)
            except EntryFault as fault:
                self._metrics.faults[pb.FaultCode.Name(fault.code)] += 1
                faults.append(fault_entry(entry.sequence, entry.epoch, entry.base, fault.code, fault.detail))
        self._close_ended()
        return faults

    def drop_stream(self, stream: int) -> None:
        self._table.close_stream(stream)
        self._close_ended()

    def drop_sessions(self, keys: list[int]) -> None:
        """The drafter lost them; their targets find out with the next entry."""
        for key in keys:
            session = self._table.by_key(key)
            if session is not None:
                self._table.close(session.owner)
        self._close_ended()

    def expire(self, now: float) -> None:
        self._table.expire(now)
        self._close_ended()

    def _admit(self, caller: Caller, frame: int, entry: pb.Entry, now: float) -> None:
        operation = entry.WhichOneof("operation")
        if operation == "open":
            self._open(caller, entry, now)
        elif operation == "close":
            self._table.close((caller.stream, entry.sequence))
        elif operation is None:
            raise malformed("operation: there is none")
        else:
            session = self._session(caller, entry, now)
            if operation == "append":
                self._append(caller, session, entry)
            elif operation == "catch_up":
                self._catch_up(caller, session, entry)
            else:
                self._ask(caller, session, frame, entry, now)

    def _open(self, caller: Caller, entry: pb.Entry, now: float) -> None:
        check_open(entry)
        wanted = entry.open
        if self.is_draining:
            raise EntryFault(pb.FAULT_CODE_FULL, "this drafter is stopping")
        try:
            session = self._table.open((caller.stream, entry.sequence), entry.epoch, wanted.lease, now)
        except TableFull:
            raise EntryFault(pb.FAULT_CODE_FULL, "no place is left") from None
        except UnknownLease:
            raise EntryFault(pb.FAULT_CODE_BAD_LEASE, "the lease is unknown, lapsed or used up") from None
        self._metrics.opened += 1
        opening = Opening(session.key, wanted.temperature, wanted.noise_key, wanted.top_k, wanted.top_p)
        self.pending.open(opening)

    def _session(self, caller: Caller, entry: pb.Entry, now: float) -> Session:
        session = self._table.get((caller.stream, entry.sequence), now)
        if session is None:
            raise EntryFault(pb.FAULT_CODE_UNKNOWN_SESSION, "it was evicted or never opened")
        if entry.epoch < session.epoch or (entry.epoch > session.epoch and not entry.HasField("catch_up")):
            raise EntryFault(pb.FAULT_CODE_BASE_MISMATCH, f"epoch: the session is at {session.epoch}")
        return session

    def _append(self, caller: Caller, session: Session, entry: pb.Entry) -> None:
        message = entry.append
        if entry.base != session.length:
            raise EntryFault(pb.FAULT_CODE_BASE_MISMATCH, f"base: the session's length is {session.length}")
        tokens, features = self._content(caller, entry.base, message)
        if features is not None:
            held = session.feature_end
            if features.first != held if held is not None else features.first < session.start:
                raise EntryFault(pb.FAULT_CODE_BASE_MISMATCH, f"first_feature: those held end at {held}")
            session.feature_end = features.end
        session.length += len(tokens)
        self.pending.append(session.key, entry.base, tokens, features)

    def _catch_up(self, caller: Caller, session: Session, entry: pb.Entry) -> None:
        tokens, features = self._content(caller, entry.base, entry.catch_up)
        if features is not None and features.first < entry.base:
            raise malformed(f"first_feature: {features.first} is before base ({entry.base})")
        session.epoch = entry.epoch
        session.start, session.length = entry.base, entry.base + len(tokens)
        session.feature_end = None if features is None else features.end
        self._metrics.catch_ups += 1
        self.pending.catch_up(session.key, entry.base, tokens, features)

    def _content(
        self, caller: Caller, base: int, message: pb.Append | pb.CatchUp
    ) -> tuple[tuple[int, ...], Features | None]:
        tokens = checked_tokens(base, message, caller.vocabulary, self._traits.max_position)
        return tokens, checked_features(message, base + len(tokens), self._traits, caller.hidden_size)

    def _ask(self, caller: Caller, session: Session, frame: int, entry: pb.Entry, now: float) -> None:
        self._metrics.asks += 1
        if entry.ask.max_draft < 1:
            raise malformed("max_draft: it must be at least 1")
        if entry.base != session.length or session.length == 0:
            raise EntryFault(pb.FAULT_CODE_BASE_MISMATCH, f"base: the session's length is {session.length}")
        if self._traits.feature_layers and session.feature_end != session.length - 1:
            raise EntryFault(pb.FAULT_CODE_BASE_MISMATCH, f"features: they end at {session.feature_end}")
        count = min(entry.ask.max_draft, self._traits.max_draft)
        if self._traits.max_position:
            count = min(count, self._traits.max_position - session.length)
        deadline = now + entry.ask.deadline_us / 1e6 if entry.ask.deadline_us else _NEVER
        reply_to = ReplyTo(caller.stream, frame, entry.sequence, entry.epoch, entry.base)
        self.pending.ask(Ask(Question(session.key, session.length, max(count, 0)), reply_to, deadline))

    def _close_ended(self) -> None:
        for key in self._table.take_ended():
            self.pending.close(key)
        self._metrics.evicted = self._table.evicted


def fault_entry(sequence: int, epoch: int, base: int, code: pb.FaultCode.ValueType, detail: str) -> pb.ReplyEntry:
    return pb.ReplyEntry(sequence=sequence, epoch=epoch, base=base, fault=pb.Fault(code=code, detail=detail))
