"""Where the engine gets its drafts from."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import torch

from protos import drafting_pb2 as pb
from services.dcut.costs.drafts import DraftWait
from services.dcut.messages import Member
from services.rpc.credential import Credential
from services.target.drafting.answers import AnswerDesk
from services.target.drafting.choice import preference
from services.target.drafting.config import DraftingConfig
from services.target.drafting.counters import DraftingCounters
from services.target.drafting.features import row_bytes
from services.target.drafting.interface import DraftingContext, DraftSource, FeatureRequest, Guess, Lease
from services.target.drafting.links import LinkPool
from services.target.drafting.remote import DrafterLink, Inbound
from services.target.drafting.sender import Outgoing, Sender
from services.target.drafting.sequence import DraftedSequence
from services.target.drafting.sources import Sources
from services.target.drafting.traits import NEWEST_PROTOCOL, OLDEST_PROTOCOL

_MAX_UNREAD_REPLIES = 4096


class Desk:
    """Implements `DraftingDesk` over drafter replicas and local lookup.

    The methods of the interface belong to the engine's thread, `wake` to any. The
    connections live on a loop of their own; what comes in waits in an inbox until
    the engine's thread asks for something. `members` tells the fleet view and must
    be callable from the engine's thread without blocking. Drafters are shown the credential.
    """

    def __init__(
        self,
        config: DraftingConfig,
        vocabulary: int,
        hidden_size: int,
        replica: str,
        members: Callable[[], tuple[Member, ...]],
        credential: Credential | None = None,
    ) -> None:
        self.counters = DraftingCounters()
        self._config = config
        self._sequences: dict[int, DraftedSequence] = {}
        self._inbox: deque[Inbound] = deque()
        self._event = threading.Event()
        hello = pb.TargetHello(
            protocol=NEWEST_PROTOCOL,
            oldest_protocol=OLDEST_PROTOCOL,
            replica=replica,
            vocabulary=vocabulary,
            hidden_size=hidden_size,
        )
        self._pool = LinkPool(config, hello, members, self.counters, self._on_reply, self._event.set, credential)
        self._interest: tuple[FeatureRequest, ...] = ()
        self._interest_version = -1
        self._answers = AnswerDesk(config, vocabulary, self._sequences, self.counters)
        self._sender = Sender(config, self.counters)
        self._sources = Sources(config, replica, self._pool, self._sender, self.counters)

    def start(self) -> None:
        """Starts connecting; returns at once."""
        self._pool.refresh(time.monotonic())

    def stop(self) -> None:
        """Hangs up on every drafter, which ends the sessions there."""
        self._sequences.clear()
        self._pool.stop()

    def open(self, sequence: int, context: DraftingContext, tokens: Sequence[int]) -> None:
        assert sequence not in self._sequences, "a sequence is opened once"
        kinds = preference(context.speculation, "", self._config.kinds)
        self._sequences[sequence] = DraftedSequence(sequence, context, tokens, kinds)

    def attach(self, sequence: int, lease: Lease) -> None:
        record = self._sequences.get(sequence)
        if record is None or record.context.speculation.is_off or not self._pool.lease(lease.address):
            return
        if record.lease is not None:
            self._pool.release(record.lease.address)
        record.lease, record.lease_token = lease, lease.token
        record.kinds = preference(record.context.speculation, lease.kind, self._config.kinds)
        record.version = -1
        self._sources.settle(record, time.monotonic())
        if record.link is None or record.link.address != lease.address or record.state.held is not None:
            return
        outgoing = self._sender.begin(record.link)
        if outgoing is not None and outgoing.generation == record.generation:
            self._sender.open(outgoing, record)  # now, before the lease lapses
            self._sender.send(outgoing)

    def features_wanted(self, sequence: int) -> FeatureRequest | None:
        record = self._sequences.get(sequence)
        if record is None or not record.kinds:
            return None
        self._sources.settle(record, time.monotonic())
        return record.wanted

    def features_of_interest(self) -> tuple[FeatureRequest, ...]:
        if self._interest_version != self._pool.version:
            self._interest_version = self._pool.version
            self._interest = self._pool.features_of_interest()
        return self._interest

    def features_end(self, sequence: int) -> int:
        record = self._sequences.get(sequence)
        return 0 if record is None else record.features.end

    def add_features(self, sequence: int, first_position: int, features_RTD: torch.Tensor) -> None:
        """Raises ValueError for a dtype or shape that no drafter takes."""
        record = self._sequences.get(sequence)
        if record is None or record.wanted is None or not features_RTD.shape[0]:
            return
        size = row_bytes(features_RTD)
        share = self._config.max_feature_bytes // (len(self._sequences) * size)
        window = record.wanted.window or self._config.feature_window
        record.features.add(first_position, features_RTD, max(min(window, self._config.feature_window, share), 1))
        self._sender.stream_prompt(record, size)

    def connected_kinds(self) -> set[str]:
        return {link.traits.kind for link in self._pool.usable() if link.traits is not None}

    def prefer(self, sequence: int, kind: str) -> None:
        record = self._sequences.get(sequence)
        if record is not None and kind in record.kinds:
            record.kinds = (kind, *(other for other in record.kinds if other != kind))
            record.version = -1

    def source_of(self, sequence: int) -> DraftSource | None:
        record = self._sequences.get(sequence)
        if record is None or not record.kinds:
            return None
        now = time.monotonic()
        self._sources.settle(record, now)
        most = self._config.max_draft
        if record.link is None or self._is_repeating(record):
            return None if record.local is None else DraftSource("lookup", True, most)
        traits = record.link.traits
        if traits is None or now < record.retry_at or 0 < traits.max_position <= len(record.tokens):
            return None
        return DraftSource(traits.kind, False, min(traits.max_draft, most))

    def take_waits(self) -> list[DraftWait]:
        self._drain()
        return self._answers.take_waits()

    def ask(self, sequences: Sequence[tuple[int, int]]) -> None:
        now = time.monotonic()
        self._drain()
        self._pool.refresh(now)
        outbox: dict[DrafterLink, Outgoing | None] = {}
        for number, count in sequences:
            record = self._sequences.get(number)
            if record is None or not record.kinds:
                continue
            limit = record.context.speculation.max_draft_tokens
            count = min(count, self._config.max_draft, count if limit is None else limit)
            if count <= 0:
                continue
            self._sources.settle(record, now)
            if record.link is None or self._is_repeating(record):
                self._draft_here(record, count)
                continue
            if record.link not in outbox:
                outbox[record.link] = self._sender.begin(record.link)
            outgoing = outbox[record.link]
            if outgoing is None or not self._sender.ask(outgoing, record, count, now):
                self.counters.skipped += 1
        for outgoing in outbox.values():
            if outgoing is not None:
                self._sender.send(outgoing)

    def is_pending(self, sequence: int) -> bool:
        self._drain()
        record = self._sequences.get(sequence)
        if record is None or not record.state.is_waiting:
            return False
        if not record.is_connected:
            self._sources.lose(record)
            return False
        if record.state.expire(time.monotonic()):
            self.counters.missed += 1
            return False
        return True

    def take(self, sequence: int) -> Guess | None:
        self._drain()
        record = self._sequences.get(sequence)
        if record is None or not record.state.has_guess:
            return None
        guess = record.state.take(len(record.tokens))
        self.counters.unused += guess is None
        return guess

    def drafter_of(self, sequence: int) -> str:
        record = self._sequences.get(sequence)
        if record is None:
            return "none"
        traits = record.link.traits if record.link is not None else None
        if traits is not None:
            return f"{traits.kind}+lookup" if record.is_beside else traits.kind
        return "none" if record.local is None else "lookup"

    def close(self, sequence: int) -> None:
        record = self._sequences.pop(sequence, None)
        if record is None:
            return
        self._sources.leave(record)
        if record.lease is not None:
            self._pool.release(record.lease.address)

    def wait(self, timeout_s: float) -> None:
        self._event.wait(timeout_s)
        self._event.clear()

    def wake(self) -> None:
        self._event.set()

    def _is_repeating(self, record: DraftedSequence) -> bool:
        """Lookup is right there more often than a drafter, and costs nothing; its drafter is caught up later."""
        return record.local is not None and record.local.repeated() >= self._config.lookup_from

    def _draft_here(self, record: DraftedSequence, count: int) -> None:
        if record.local is None:
            self.counters.skipped += 1
            return
        guess = record.local.draft(count)
        if guess is not None:
            self.counters.local_drafts += 1
            record.is_beside = record.is_beside or record.link is not None
            record.state.offer(guess, len(record.tokens))

    def _on_reply(self, inbound: Inbound) -> None:
        """On the loop."""
        if len(self._inbox) >= _MAX_UNREAD_REPLIES:
            self.counters.dropped_frames += 1
            return
        self._inbox.append(inbound)
        self._event.set()

    def _drain(self) -> None:
        while self._inbox:
            self._answers.receive(self._inbox.popleft())
