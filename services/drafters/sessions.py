"""Which sequences a drafter replica holds: a bounded table with leases. Pure; the caller passes the clock."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from services.drafters.config import SessionLimits

Owner = tuple[int, int]  # stream, and the sequence's id within it
_TOKEN_BYTES = 16


class TableFull(Exception):
    """No place is free, and no session has been idle for long enough to be forgotten."""


class UnknownLease(Exception):
    """The lease was never given, has lapsed, or has been used up."""


@dataclass(slots=True)
class Session:
    """What the drafter holds of one sequence, as promised by the messages admitted so far."""

    key: int  # its name towards the drafter, never used again
    owner: Owner
    epoch: int
    used_at: float
    start: int = 0  # oldest position held
    length: int = 0  # committed length
    feature_end: int | None = None  # position after the newest hidden state; None: there are none


@dataclass(slots=True)
class _Lease:
    places: int
    lapses_at: float


class SessionTable:
    """Open sessions and reserved places together never exceed the limit.

    Sessions that end here without the drafter knowing (evicted, replaced, expired)
    are handed out once by `take_ended`, to be closed there.
    """

    def __init__(self, limits: SessionLimits, mint: Callable[[int], bytes] = secrets.token_bytes) -> None:
        self._limits = limits
        self._mint = mint
        self._sessions: OrderedDict[Owner, Session] = OrderedDict()  # least recently used first
        self._by_key: dict[int, Session] = {}
        self._leases: dict[bytes, _Lease] = {}
        self._reserved = 0
        self._next_key = 0
        self._ended: list[int] = []
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def reserved(self) -> int:
        return self._reserved

    def reserve(self, places: int, now: float) -> bytes:
        """A lease for so many sessions. Raises TableFull."""
        self._make_room(places, now)
        token = self._mint(_TOKEN_BYTES)
        self._leases[token] = _Lease(places, now + self._limits.lease_ttl_s)
        self._reserved += places
        return token

    def open(self, owner: Owner, epoch: int, lease: bytes, now: float) -> Session:
        """A fresh session, in place of an older one of the same owner. Raises TableFull or UnknownLease."""
        if lease:
            self._use_lease(lease, now)
        self.close(owner)
        self._make_room(1, now)
        session = Session(self._next_key, owner, epoch, now)
        self._next_key += 1
        self._sessions[owner] = session
        self._by_key[session.key] = session
        return session

    def get(self, owner: Owner, now: float) -> Session | None:
        """The owner's session, which counts as a use of it."""
        session = self._sessions.get(owner)
        if session is not None:
            session.used_at = now
            self._sessions.move_to_end(owner)
        return session

    def by_key(self, key: int) -> Session | None:
        return self._by_key.get(key)

    def close(self, owner: Owner) -> None:
        session = self._sessions.pop(owner, None)
        if session is not None:
            del self._by_key[session.key]
            self._ended.append(session.key)

    def close_stream(self, stream: int) -> None:
        for owner in [owner for owner in self._sessions if owner[0] == stream]:
            self.close(owner)

    def expire(self, now: float) -> None:
        """Ends what nobody has used for too long."""
        self._lapse_leases(now)
        while self._sessions:
            oldest = next(iter(self._sessions.values()))
            if now - oldest.used_at <= self._limits.idle_ttl_s:
                break
            self.close(oldest.owner)

    def take_ended(self) -> list[int]:
        ended, self._ended = self._ended, []
        return ended

    def _use_lease(self, token: bytes, now: float) -> None:
        self._lapse_leases(now)
        lease = self._leases.get(token)
        if lease is None:
            raise UnknownLease
        lease.places -= 1
        self._reserved -= 1
        if lease.places == 0:
            del self._leases[token]

    def _lapse_leases(self, now: float) -> None:
        for token in [token for token, lease in self._leases.items() if lease.lapses_at <= now]:
            self._reserved -= self._leases.pop(token).places

    def _make_room(self, places: int, now: float) -> None:
        self._lapse_leases(now)
        limit = self._limits.max_sessions
        excess = len(self._sessions) + self._reserved + places - limit
        if excess <= 0:
            return
        idle: list[Owner] = []
        for session in self._sessions.values():
            if len(idle) == excess or now - session.used_at < self._limits.evict_idle_s:
                break
            idle.append(session.owner)
        if len(idle) < excess:
            raise TableFull
        for owner in idle:
            self.close(owner)
            self.evicted += 1
