"""Settles where each sequence's drafts come from: a drafter replica, lookup in this process, or nowhere."""

from __future__ import annotations

from services.drafters.drafter import Traits
from services.target.drafting.choice import Candidate, choose
from services.target.drafting.config import DraftingConfig
from services.target.drafting.counters import DraftingCounters
from services.target.drafting.links import LinkPool
from services.target.drafting.local import LocalLookup
from services.target.drafting.sender import Sender
from services.target.drafting.sequence import DraftedSequence
from services.target.drafting.traits import request_of


class Sources:
    """A choice stands until a connection comes or goes, or a drafter that was avoided may be tried again."""

    def __init__(
        self, config: DraftingConfig, replica: str, pool: LinkPool, sender: Sender, counters: DraftingCounters
    ) -> None:
        self._config = config
        self._replica = replica
        self._pool = pool
        self._sender = sender
        self._counters = counters

    def settle(self, record: DraftedSequence, now: float) -> None:
        """Chooses where a choice is due."""
        if record.version != self._pool.version or now >= record.choose_again_at:
            self._choose(record, now)
        elif record.link is not None and not record.is_connected:
            self.lose(record)

    def leave(self, record: DraftedSequence) -> None:
        """Ends its session at its drafter."""
        self._sender.close(record)
        record.state.lose()
        record.link = None

    def lose(self, record: DraftedSequence) -> None:
        """The stream of its session has ended; whatever comes next starts anew."""
        assert record.link is not None
        self._counters.lost += record.state.held is not None
        record.state.lose()
        record.generation = record.link.state.generation

    def _choose(self, record: DraftedSequence, now: float) -> None:
        record.version = self._pool.version
        record.avoided = {address: until for address, until in record.avoided.items() if until > now}
        record.choose_again_at = min(record.avoided.values(), default=float("inf"))
        links = {link.address: link for link in self._pool.usable() if link.address not in record.avoided}
        candidates = [Candidate(address, link.traits.kind) for address, link in links.items() if link.traits]
        has_session = record.state.held is not None  # without one, nothing speaks for staying
        current = record.link.address if record.link is not None and has_session else ""
        leased = record.lease.address if record.lease is not None else ""
        chosen = choose(candidates, record.kinds, f"{self._replica}/{record.id}", current, leased)
        link = None if chosen is None else links[chosen.address]
        if link is not record.link:
            self.leave(record)
            record.link = link
            record.succeed()
            if link is not None:
                record.generation = link.state.generation
                self._pool.note(link)
        elif link is not None and not record.is_connected:
            self.lose(record)
        if not self._wants_lookup(record):
            record.local = None
        elif record.local is None:
            record.local = LocalLookup(self._config.lookup, record.tokens)
        self._want_features(record)

    def _wants_lookup(self, record: DraftedSequence) -> bool:
        """Without a drafter, or beside one where the request leaves the choice to us."""
        if not self._config.local_lookup or not record.kinds:
            return False
        if record.link is None:
            return True
        traits = record.link.traits
        is_neural = traits is not None and traits.kind != "lookup"
        return is_neural and self._config.lookup_from > 0 and record.context.speculation.drafter == "auto"

    def _want_features(self, record: DraftedSequence) -> None:
        """While the best kind is away its hidden states are kept, so that it can be caught up."""
        traits: Traits | None = record.link.traits if record.link is not None else None
        known = self._pool.known_traits
        if traits is None or not traits.feature_layers:
            traits = next((known[kind] for kind in record.kinds if kind in known), None)
        wanted = None if traits is None else request_of(traits)
        if wanted != record.wanted:
            record.wanted = wanted
            record.features.clear()
