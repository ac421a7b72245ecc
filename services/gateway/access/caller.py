"""Whose request this is."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from services.gateway.access.keys import KeyRecord


@dataclass(frozen=True, slots=True)
class Caller:
    """`key` is None where no keys are asked for; all such callers are one."""

    key: KeyRecord | None = None

    @property
    def tenant(self) -> str:
        """Whose share of the target a request has, and whose prefixes it may reuse."""
        return "" if self.key is None else self.key.id


ANYONE = Caller()

# Set at the door, in the task that serves the request, and read wherever it matters: both doors and every
# method have it by the same way, and one that forgot to hand it on could not mix up two callers.
CALLER: ContextVar[Caller] = ContextVar("CALLER", default=ANYONE)
