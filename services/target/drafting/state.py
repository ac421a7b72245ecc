"""What one sequence's drafter holds and owes. Pure; the caller passes the clock."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from services.target.drafting.interface import Guess


class Outcome(Enum):
    """What an answer turned out to be."""

    DRAFTED = "drafted"
    STALE = "stale"
    LATE = "late"
    MALFORMED = "malformed"


@dataclass(frozen=True, slots=True)
class DraftReply:
    """A draft as it came over the wire, unchecked."""

    epoch: int
    base: int
    tokens: tuple[int, ...]
    probabilities: tuple[float, ...]


@dataclass(slots=True)
class _Ask:
    base: int
    max_draft: int
    deadline: float
    expired: bool = False


class DraftState:
    """Anything but the newest ask's timely and well-formed answer is a draft of length zero.

    `held` is the committed length that the drafter has been told, None while it has
    no session. `epoch` rises whenever the drafter starts anew, so that answers from
    before can be told apart.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self.held: int | None = None
        self._ask: _Ask | None = None
        self._guess: Guess | None = None
        self._guess_base = -1

    def restart(self) -> int:
        """A new session or catch-up begins; returns its epoch."""
        self.epoch += 1
        self.held = 0
        self._ask = None
        return self.epoch

    def lose(self) -> None:
        """The drafter's session is gone. A draft that has arrived before is still good."""
        self.held = None
        self._ask = None

    def void(self) -> None:
        """The committed tokens are no longer what they were."""
        self.lose()
        self._guess = None

    def ask(self, base: int, max_draft: int, deadline: float) -> None:
        assert self.held == base, "only a drafter that has been told everything is asked"
        self._ask = _Ask(base, max_draft, deadline)
        self._guess = None

    def expire(self, now: float) -> bool:
        """Whether the newest ask has just run past its deadline."""
        if self._ask is None or self._ask.expired or now <= self._ask.deadline:
            return False
        self._ask.expired = True
        return True

    @property
    def is_waiting(self) -> bool:
        """An ask is neither answered nor expired."""
        return self._ask is not None and not self._ask.expired

    def on_draft(self, reply: DraftReply, now: float, vocabulary: int) -> Outcome:
        """Judges an answer; only a DRAFTED one can be taken."""
        ask = self._ask
        if ask is None or reply.epoch != self.epoch or reply.base != ask.base:
            return Outcome.STALE
        self._ask = None
        if ask.expired or now > ask.deadline:
            return Outcome.LATE
        if not _is_sound(reply, ask.max_draft, vocabulary):
            return Outcome.MALFORMED
        if reply.tokens:
            self._guess, self._guess_base = Guess(reply.tokens, reply.probabilities), ask.base
        return Outcome.DRAFTED

    def on_shed(self, epoch: int, base: int) -> bool:
        """The drafter will not answer the ask; whether that ask was the newest."""
        if self._ask is None or epoch != self.epoch or base != self._ask.base:
            return False
        self._ask = None
        return True

    def offer(self, guess: Guess, base: int) -> None:
        """A draft made in this process."""
        self._ask = None
        self._guess, self._guess_base = guess, base

    @property
    def has_guess(self) -> bool:
        return self._guess is not None

    def take(self, length: int) -> Guess | None:
        """The draft for that committed length, once. One for another length is dropped."""
        guess, self._guess = self._guess, None
        return guess if self._guess_base == length else None


def _is_sound(reply: DraftReply, max_draft: int, vocabulary: int) -> bool:
    return (
        len(reply.tokens) <= max_draft
        and len(reply.probabilities) == len(reply.tokens)
        and all(0 <= token < vocabulary for token in reply.tokens)
        and all(0.0 <= probability <= 1.0 for probability in reply.probabilities)  # false for NaN
    )
