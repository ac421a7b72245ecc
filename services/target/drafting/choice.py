"""Which connected drafter a sequence should use. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from services.dcut.rendezvous import score
from services.requests.speculation import Speculation


@dataclass(frozen=True, slots=True)
class Candidate:
    """A drafter that could be used now."""

    address: str
    kind: str


def preference(speculation: Speculation, leased_kind: str, kinds: tuple[str, ...]) -> tuple[str, ...]:
    """Kinds to try, best first: what the router found, what the request named, then the usual order."""
    if speculation.is_off:
        return ()
    named = () if speculation.drafter == "auto" else (speculation.drafter,)
    leased = (leased_kind,) if leased_kind else ()
    return tuple(dict.fromkeys((*leased, *named, *kinds)))


def choose(
    candidates: Iterable[Candidate], kinds: tuple[str, ...], sequence: str, current: str, leased: str
) -> Candidate | None:
    """The best kind first; within it the current drafter, the leased one, then by rendezvous.

    `current` and `leased` are addresses, empty where there is none.
    """
    rank = {kind: index for index, kind in enumerate(kinds)}
    fitting = [candidate for candidate in candidates if candidate.kind in rank]
    if not fitting:
        return None
    return min(
        fitting,
        key=lambda candidate: (
            rank[candidate.kind],
            candidate.address != current,
            candidate.address != leased,
            -score(sequence, candidate.address),
        ),
    )
