"""Tells drafters what they must know: sessions, committed tokens, hidden states, asks."""

from __future__ import annotations

from dataclasses import dataclass, field

from services.drafters.drafter import Traits
from services.target.drafting.config import DraftingConfig
from services.target.drafting.counters import DraftingCounters
from services.target.drafting.fill import fill_features, fill_tokens
from services.target.drafting.frames import FramePacker
from services.target.drafting.remote import DrafterLink
from services.target.drafting.sequence import DraftedSequence


@dataclass(slots=True)
class Outgoing:
    """What goes to one drafter in one engine step, over the stream that is open now."""

    link: DrafterLink
    generation: int
    traits: Traits
    packer: FramePacker
    told: list[DraftedSequence] = field(default_factory=list)


class Sender:
    """All methods run in the engine's thread; nothing leaves before `send`."""

    def __init__(self, config: DraftingConfig, counters: DraftingCounters) -> None:
        self._config = config
        self._counters = counters

    def begin(self, link: DrafterLink) -> Outgoing | None:
        """None while the link is down."""
        state = link.state
        if state.traits is None:
            return None
        packer = FramePacker(self._config.max_message_bytes, link.next_frame)
        return Outgoing(link, state.generation, state.traits, packer)

    def send(self, outgoing: Outgoing) -> None:
        frames = outgoing.packer.frames()
        if not frames:
            return
        outgoing.link.next_frame = outgoing.packer.next_frame
        if not outgoing.link.send(outgoing.generation, frames):
            self._counters.dropped_frames += len(frames)
            for record in outgoing.told:
                record.state.lose()

    def open(self, outgoing: Outgoing, record: DraftedSequence) -> None:
        leased = record.lease is not None and outgoing.link.address == record.lease.address
        outgoing.packer.open(record.id, record.state.restart(), record.context, record.lease_token if leased else b"")
        outgoing.told.append(record)
        if leased:
            record.lease_token = b""
        self._counters.opens += 1

    def close(self, record: DraftedSequence) -> None:
        """Frees the record's place at its drafter, where it has one."""
        if record.link is None or record.state.held is None:
            return
        outgoing = self.begin(record.link)
        if outgoing is not None and outgoing.generation == record.generation:
            outgoing.packer.close(record.id, record.state.epoch)
            self.send(outgoing)

    def ask(self, outgoing: Outgoing, record: DraftedSequence, count: int, now: float) -> bool:
        """Whether the drafter could be asked for at most `count` tokens."""
        traits, length, state = outgoing.traits, len(record.tokens), record.state
        has_room = not traits.max_position or length < traits.max_position
        if outgoing.generation != record.generation or not has_room or now < record.retry_at:
            return False
        self._fill(outgoing, record)
        if state.held != length:  # hidden states are missing
            return False
        count = min(count, traits.max_draft)
        waits = outgoing.link.waits
        frame = outgoing.packer.ask(record.id, state.epoch, length, count, int(waits.allowance_s * 1e6))
        waits.asked(frame, count, now)
        state.ask(length, count, now + waits.allowance_s)
        self._counters.asks += 1
        return True

    def stream_prompt(self, record: DraftedSequence, row_bytes: int) -> None:
        """Sends hidden states of a long prompt while the rest of it is being computed."""
        outgoing = None if record.link is None else self.begin(record.link)
        if outgoing is None or outgoing.generation != record.generation or not outgoing.traits.feature_layers:
            return
        traits, features, length = outgoing.traits, record.features, len(record.tokens)
        unsent = features.end - max((record.state.held or 0) - 1, features.first)
        is_old = bool(traits.window) and features.end < length - traits.window
        is_too_long = bool(traits.max_position) and length > traits.max_position
        if unsent * row_bytes < self._config.chunk_bytes or is_old or is_too_long:
            return
        self._fill(outgoing, record)
        self.send(outgoing)

    def _fill(self, outgoing: Outgoing, record: DraftedSequence) -> None:
        packer, state, traits = outgoing.packer, record.state, outgoing.traits
        if state.held is None:
            self.open(outgoing, record)
        else:
            outgoing.told.append(record)
        if traits.feature_layers:
            caught_up = fill_features(
                packer, record.id, state, record.tokens, record.features, traits, self._config.chunk_bytes
            )
        else:
            caught_up = fill_tokens(packer, record.id, state, record.tokens, traits.window)
        self._counters.catch_ups += caught_up
