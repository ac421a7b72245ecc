"""Who is alive where, from the reports alone."""

from __future__ import annotations

from dataclasses import dataclass

from services.dcut.messages import Budget, Member, Report

MAX_MEMBERS = 4096
DEFAULT_TTL_S = 5.0


@dataclass(frozen=True, slots=True)
class _Entry:
    member: Member
    expires: float


class Fleet:
    """The fleet view: a replica is in it for as long as its reports keep coming.

    Times are seconds of one monotonic clock, passed in, so that nothing here reads a clock.
    """

    def __init__(self, ttl_s: float = DEFAULT_TTL_S, max_members: int = MAX_MEMBERS, first_version: int = 0) -> None:
        self._ttl_s = ttl_s
        self._max_members = max_members
        self._version = first_version
        self._entries: dict[str, _Entry] = {}

    def register(self, report: Report, now: float) -> bool:
        """Takes a report as registration and as renewed lease; whether the replica was known.

        Raises ValueError when the fleet is full and the replica is new.
        """
        known = self._entries.get(report.replica)
        if known is None and len(self._entries) >= self._max_members:
            raise ValueError(f"replica: the fleet is full; at most {self._max_members} members are allowed")
        member = _as_member(report)
        if known is None or known.member != member:
            self._version += 1
        self._entries[report.replica] = _Entry(member, now + report.lease_s)
        return known is not None

    def change(self) -> None:
        """Something else that is told with the view is no longer what it was."""
        self._version += 1

    def expire(self, now: float) -> tuple[Member, ...]:
        """Drops replicas whose lease has ended and returns them."""
        gone = [name for name, entry in self._entries.items() if entry.expires <= now]
        if gone:
            self._version += 1
        return tuple(self._entries.pop(name).member for name in gone)

    def budget(self, settled: bool = True) -> Budget:
        """The view of this moment; members come in the order of their names."""
        members = tuple(self._entries[name].member for name in sorted(self._entries))
        return Budget(version=self._version, ttl_s=self._ttl_s, members=members, settled=settled)


def _as_member(report: Report) -> Member:
    return Member(
        role=report.role,
        replica=report.replica,
        address=report.address,
        kind=report.kind,
        version=report.version,
        node=report.node,
        batch=report.batch,
        queue=report.queue,
        sessions=report.sessions,
        capacity=report.capacity,
        pid=report.pid,
        exactness=report.exactness,
        numerics=report.numerics,
    )
