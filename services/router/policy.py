"""Which replica serves a request: pure functions of the fleet view."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from services.dcut.messages import Member
from services.dcut.rendezvous import score
from services.requests.speculation import DrafterChoice


def drafter_kinds(choice: DrafterChoice, preference: Sequence[str]) -> tuple[str, ...]:
    """Drafter kinds to try, in order: the asked one first, then those that may replace it.

    `preference` is that of the prompt's class.
    """
    if choice == "none":
        return ()
    if choice == "auto":
        return tuple(preference)
    return (choice, *(kind for kind in preference if kind != choice))


def rank_drafters(
    choice: DrafterChoice,
    target: str,
    members: Iterable[Member],
    *,
    preference: Sequence[str],
    per_target: int,
    sequences: int = 1,
    pending: Mapping[str, int] | None = None,
) -> list[Member]:
    """Drafter replicas to try for a request at replica `target`, best first.

    A kind comes before the next one; inside a kind, the one with the fewest
    sessions. `pending` adds the sessions by replica that the reports do not
    show yet. Each target keeps to `per_target` replicas a kind, so that streams
    and batches stay few; a replica without room for `sequences` is left out,
    and only then another takes its place.
    """
    pending = pending or {}
    drafters = [m for m in members if m.role == "drafter" and m.address]
    ranked: list[Member] = []
    for kind in drafter_kinds(choice, preference):
        roomy = [m for m in drafters if m.kind == kind and has_room(m, sequences, pending.get(m.replica, 0))]
        roomy.sort(key=lambda m: score(target, m.replica), reverse=True)
        near = roomy[:per_target]
        near.sort(key=lambda m: m.sessions + pending.get(m.replica, 0))  # stable: ties keep the hash order
        ranked += near
    return ranked


def choose_target(
    request_id: str,
    members: Iterable[Member],
    *,
    in_flight: Mapping[str, int] | None = None,
    avoid: Collection[str] = (),
    sequences: int = 1,
) -> Member | None:
    """The target replica for a request: with room before full, then the least load.

    `in_flight` counts by replica the sequences that the caller itself has there:
    reports lag, so a replica's load is the larger of the two figures. Replicas
    in `avoid` are never chosen. A full replica may still queue the request, and
    only it can tell; None means that there is no replica at all.
    """
    in_flight = in_flight or {}

    def order(member: Member) -> tuple[bool, int, int]:
        load = max(member.sessions, in_flight.get(member.replica, 0))
        is_full = member.capacity > 0 and load + sequences > member.capacity
        return is_full, load, -score(request_id, member.replica)

    candidates = (m for m in members if m.role == "target" and m.address and m.replica not in avoid)
    return min(candidates, key=order, default=None)


def has_room(member: Member, sequences: int, pending: int = 0) -> bool:
    """Whether `sequences` more fit; a capacity of 0 is unknown and taken as enough."""
    return member.capacity == 0 or member.sessions + pending + sequences <= member.capacity
