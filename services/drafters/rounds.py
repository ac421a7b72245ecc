"""What has arrived and not been drafted yet, merged into one batch for the drafter. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from services.drafters.drafter import Extension, Features, Opening, Proposal, Question


@dataclass(frozen=True, slots=True)
class ReplyTo:
    """Whom an outcome is for, and what it repeats."""

    stream: int
    frame: int
    sequence: int
    epoch: int
    base: int


@dataclass(frozen=True, slots=True)
class Ask:
    """One wish for a draft."""

    question: Question
    reply_to: ReplyTo
    deadline: float  # on the caller's clock


@dataclass(slots=True)
class _Growth:
    """Token and hidden-state chunks of one session, joined once when the batch starts."""

    restarts: bool
    base: int
    tokens: list[int]
    features: list[Features]


@dataclass(slots=True)
class Batch:
    """One call's worth of work for each method of a drafter, each session at most once a list."""

    closes: list[int] = field(default_factory=list)
    opens: list[Opening] = field(default_factory=list)
    catch_ups: list[Extension] = field(default_factory=list)
    appends: list[Extension] = field(default_factory=list)
    asks: list[Ask] = field(default_factory=list)
    shed: list[Ask] = field(default_factory=list)  # not worth drafting any more

    @property
    def is_empty(self) -> bool:
        return not (self.closes or self.opens or self.catch_ups or self.appends or self.asks or self.shed)


@dataclass(frozen=True, slots=True)
class Drafted:
    """The outcome of a batch."""

    proposals: list[tuple[Ask, Proposal]]
    lost: list[int]  # sessions that the drafter dropped because of an error
    failed: bool
    busy_s: float
    draft_s: float  # of it, in drafting proper


class Pending:
    """Collects entries between two batches; later ones of a session join or replace earlier ones."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._closes: list[int] = []
        self._opens: dict[int, Opening] = {}
        self._growth: dict[int, _Growth] = {}
        self._asks: dict[int, Ask] = {}
        self._shed: list[Ask] = []
        self.num_bytes = 0  # of hidden states and tokens held

    @property
    def is_empty(self) -> bool:
        return not (self._closes or self._opens or self._growth or self._asks or self._shed)

    def open(self, opening: Opening) -> None:
        self._opens[opening.session] = opening

    def append(self, session: int, base: int, tokens: tuple[int, ...], features: Features | None) -> None:
        growth = self._growth.setdefault(session, _Growth(False, base, [], []))
        self._grow(session, growth, tokens, features)

    def catch_up(self, session: int, base: int, tokens: tuple[int, ...], features: Features | None) -> None:
        self._drop_growth(session)
        growth = self._growth[session] = _Growth(True, base, [], [])
        self._grow(session, growth, tokens, features)

    def ask(self, ask: Ask) -> None:
        self._supersede(ask.question.session)
        self._asks[ask.question.session] = ask

    def close(self, session: int) -> None:
        self._supersede(session)
        self._drop_growth(session)
        self._opens.pop(session, None)
        self._closes.append(session)

    def take(self, now: float, expected_s: float) -> Batch:
        """Everything that has arrived. Asks that would be answered past their deadline are shed."""
        batch = Batch(closes=self._closes, opens=list(self._opens.values()), shed=self._shed)
        for session, growth in self._growth.items():
            extension = Extension(session, growth.base, tuple(growth.tokens), tuple(growth.features))
            (batch.catch_ups if growth.restarts else batch.appends).append(extension)
        for ask in self._asks.values():
            (batch.asks if now + expected_s <= ask.deadline else batch.shed).append(ask)
        self._clear()
        return batch

    def _grow(self, session: int, growth: _Growth, tokens: tuple[int, ...], features: Features | None) -> None:
        self._supersede(session)
        growth.tokens += tokens
        self.num_bytes += 8 * len(tokens)
        if features is not None:
            growth.features.append(features)
            self.num_bytes += len(features.data)

    def _drop_growth(self, session: int) -> None:
        growth = self._growth.pop(session, None)
        if growth is not None:
            self.num_bytes -= 8 * len(growth.tokens) + sum(len(chunk.data) for chunk in growth.features)

    def _supersede(self, session: int) -> None:
        older = self._asks.pop(session, None)
        if older is not None:
            self._shed.append(older)
