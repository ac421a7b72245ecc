"""The connections of a target replica: a bounded subset of the fleet's drafters, and those leased."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, TimeoutError

from protos import drafting_pb2 as pb
from services.dcut.messages import Member
from services.dcut.rendezvous import subset
from services.drafters.drafter import Traits
from services.rpc.credential import Credential
from services.target.drafting.config import DraftingConfig
from services.target.drafting.counters import DraftingCounters
from services.target.drafting.interface import FeatureRequest
from services.target.drafting.loop import drafting_loop
from services.target.drafting.remote import DrafterLink, Inbound
from services.target.drafting.traits import request_of

_log = logging.getLogger(__name__)
_STOP_TIMEOUT_S = 5.0


class LinkPool:
    """Used from the engine's thread."""

    def __init__(
        self,
        config: DraftingConfig,
        hello: pb.TargetHello,
        members: Callable[[], tuple[Member, ...]],
        counters: DraftingCounters,
        on_reply: Callable[[Inbound], None],
        on_change: Callable[[], None],
        credential: Credential | None = None,
    ) -> None:
        self._config = config
        self._credential = credential
        self._hello = hello
        self._members = members
        self._counters = counters
        self._on_reply = on_reply
        self._wake = on_change
        self._thread = drafting_loop()
        self._links: dict[str, DrafterLink] = {}
        self._leased: Counter[str] = Counter()
        self._subset: frozenset[str] = frozenset()
        self._view: tuple[Member, ...] = ()
        self._quiet: frozenset[str] = frozenset()
        self._next_refresh = 0.0
        self._own_changes = 0  # by the engine's thread
        self._loop_changes = 0  # by the loop
        self.known_traits: dict[str, Traits] = {}  # by kind, of any drafter ever connected

    @property
    def version(self) -> int:
        """Changes whenever another choice might be better."""
        return self._own_changes + self._loop_changes

    def stop(self) -> None:
        async def stop_all() -> None:
            await asyncio.gather(*(link.stop() for link in self._links.values()))

        try:
            self._thread.run(stop_all(), _STOP_TIMEOUT_S)
        except TimeoutError:
            _log.warning("connections to drafters did not close within %.0f s", _STOP_TIMEOUT_S)
        self._links.clear()

    def usable(self) -> list[DrafterLink]:
        """Connected drafters that answer."""
        return [link for link in self._links.values() if link.traits is not None and link.address not in self._quiet]

    def refresh(self, now: float) -> None:
        """Follows the fleet view, now and then, and hangs up on drafters that answer nothing.

        To be called in every step: it also finds which drafters have gone quiet.
        """
        self._find_quiet(now)
        if now < self._next_refresh:
            return
        self._next_refresh = now + self._config.refresh_s
        for link in self._links.values():
            if link.traits is not None and link.silence_s(now) > self._config.stall_s:
                _log.warning("drafter %s: no answer for %.1f s; reconnecting", link.address, self._config.stall_s)
                link.reset()
        view = self._members()
        if view is not self._view and view != self._view:
            self._view = view
            self._follow(view)

    def lease(self, address: str) -> bool:
        """A sequence may use that drafter; False when there are too many connections."""
        if address not in self._links and len(self._links) >= self._config.max_links:
            self._counters.refused_leases += 1
            return False
        self._leased[address] += 1
        self._connect(address)
        return True

    def release(self, address: str) -> None:
        self._leased[address] -= 1
        if self._leased[address] <= 0:
            del self._leased[address]
            if address not in self._subset:
                self._disconnect(address)

    def note(self, link: DrafterLink) -> None:
        """Remembers what such drafters want, for the time when none is left."""
        if link.traits is not None:
            self.known_traits[link.traits.kind] = link.traits

    def features_of_interest(self) -> tuple[FeatureRequest, ...]:
        """What the drafters connected now or before want, one request for each kind."""
        for link in self._links.values():
            self.note(link)
        return tuple(request for traits in self.known_traits.values() if (request := request_of(traits)) is not None)

    def _follow(self, view: tuple[Member, ...]) -> None:
        by_kind: defaultdict[str, dict[str, str]] = defaultdict(dict)  # replica -> address
        for member in view:
            if member.role == "drafter" and member.address:
                by_kind[member.kind][member.replica] = member.address
        wanted: list[str] = []
        for kind in self._config.kinds:
            addresses = by_kind[kind]
            wanted += [addresses[replica] for replica in subset(self._hello.replica, addresses, self._config.fanout)]
        self._subset = frozenset(wanted[: self._config.max_links])
        for address in [a for a in self._links if a not in self._subset and a not in self._leased]:
            self._disconnect(address)
        for address in self._subset:
            if len(self._links) < self._config.max_links:
                self._connect(address)
        self._own_changes += 1

    def _find_quiet(self, now: float) -> None:
        quiet_s = self._config.quiet_ms / 1e3
        links = self._links.values()
        quiet = frozenset(link.address for link in links if link.silence_s(now) > quiet_s)
        if quiet != self._quiet:
            self._quiet = quiet
            self._own_changes += 1

    def _connect(self, address: str) -> None:
        if address in self._links:
            return
        link = DrafterLink(
            address,
            self._hello,
            self._config,
            self._counters,
            self._thread.loop,
            self._on_reply,
            self._changed,
            self._credential,
        )
        self._links[address] = link
        self._thread.loop.call_soon_threadsafe(link.start)

    def _disconnect(self, address: str) -> None:
        link = self._links.pop(address, None)
        if link is not None:
            asyncio.run_coroutine_threadsafe(link.stop(), self._thread.loop).add_done_callback(_report)
            self._own_changes += 1

    def _changed(self) -> None:
        """On the loop: a link came up or went down."""
        self._loop_changes += 1
        self._wake()


def _report(stopped: Future[None]) -> None:
    try:
        stopped.result()
    except (Exception, CancelledError) as error:
        _log.warning("a connection did not close cleanly: %s", error)
