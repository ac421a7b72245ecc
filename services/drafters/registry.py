"""The drafter kinds. A new kind is a folder and a line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from services.drafters.config import DrafterConfig
from services.drafters.drafter import Drafter


@dataclass(frozen=True, slots=True)
class Kind:
    """How a drafter kind is built. `build` imports what it needs itself, so that a light
    kind never pays for torch."""

    build: Callable[[DrafterConfig], Drafter]
    needs_torch: bool


def _lookup(config: DrafterConfig) -> Drafter:
    from services.drafters.lookup.runtime import LookupDrafter

    return LookupDrafter(config.lookup, max_draft=config.max_draft, max_position=config.sessions.max_positions)


KINDS: dict[str, Kind] = {
    "lookup": Kind(_lookup, needs_torch=False),
}


def kind_of(config: DrafterConfig) -> Kind:
    """Raises ValueError for a kind that is not here."""
    kind = KINDS.get(config.kind)
    if kind is None:
        raise ValueError(f"kind: {config.kind!r} is not known; it must be one of {', '.join(KINDS)}")
    return kind
