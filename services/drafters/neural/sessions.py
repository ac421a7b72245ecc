"""What drafters with weights hold of each sequence, and the part of serving they share."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from services.drafters.drafter import Extension, Features, Opening, Proposal, Question, Traits
from services.drafters.neural.config import DecoderConfig
from services.drafters.neural.context import Context, ContextPool, Span

_log = logging.getLogger(__name__)
_LAZY_ROWS = 32  # more new rows than this are computed at once, before a draft waits for them
_CHUNK_ROWS = 256
_LARGEST = 1e6  # of a hidden state; beyond it, or NaN, a sequence gets no drafts until it is caught up
_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}

SPARE_ROWS = _CHUNK_ROWS + _LAZY_ROWS


@dataclass(slots=True)
class NeuralSession:
    """Hidden states in `rows_RTD` still wait for their KV, the newest one always."""

    opening: Opening
    context: Context | None = None
    rows_RTD: torch.Tensor | None = None  # of positions first_row, first_row + 1, ...; None: no KV either
    first_row: int = 0
    tokens: list[int] = field(default_factory=list)  # of positions first_token, ...
    first_token: int = 0
    is_broken: bool = False

    @property
    def length(self) -> int:
        return self.first_token + len(self.tokens)

    @property
    def end(self) -> int:
        """Position after the newest hidden state."""
        return self.first_row + (0 if self.rows_RTD is None else self.rows_RTD.shape[0])

    def tokens_from(self, position: int, count: int) -> list[int]:
        start = position - self.first_token
        return self.tokens[start : start + count]


@dataclass(frozen=True, slots=True)
class Job:
    """A session that gets a draft of `count` tokens for positions base, base + 1, ..."""

    session: NeuralSession
    base: int
    count: int


class NeuralDrafter(ABC):
    """Implements `Drafter` but for the arithmetic of a kind."""

    traits: Traits

    def __init__(self, traits: Traits, config: DecoderConfig, pool: ContextPool, max_batch: int) -> None:
        self.traits = traits
        self._dtype = pool.kv.keys_LBKDP.dtype
        self._device = pool.kv.keys_LBKDP.device
        self._pool = pool
        self._max_batch = max_batch
        self._sessions: dict[int, NeuralSession] = {}

    @abstractmethod
    def _absorb(self, session: NeuralSession, count: int) -> None:
        """Writes the KV of the first `count` rows that wait."""

    @abstractmethod
    def _draft(self, jobs: Sequence[Job]) -> list[Proposal]: ...

    def open(self, openings: Sequence[Opening]) -> None:
        for opening in openings:
            self._sessions[opening.session] = NeuralSession(opening)

    @torch.inference_mode()
    def append(self, extensions: Sequence[Extension]) -> None:
        for extension in extensions:
            self._extend(self._sessions[extension.session], extension)

    @torch.inference_mode()
    def catch_up(self, extensions: Sequence[Extension]) -> None:
        for extension in extensions:
            session = self._sessions[extension.session]
            self._forget(session)
            session.tokens, session.first_token = [], extension.base
            session.is_broken = False
            self._extend(session, extension)

    @torch.inference_mode()
    def draft(self, questions: Sequence[Question]) -> Sequence[Proposal]:
        proposals = [Proposal()] * len(questions)
        jobs: list[tuple[int, Job]] = []
        for index, question in enumerate(questions):
            session = self._sessions[question.session]
            room = self.traits.max_position - question.base
            count = min(question.max_draft, self.traits.max_draft, room)
            if count > 0 and session.rows_RTD is not None and session.end == question.base - 1 == session.length - 1:
                jobs.append((index, Job(session, question.base, count)))
        for start in range(0, len(jobs), self._max_batch):
            part = jobs[start : start + self._max_batch]
            for (index, _), proposal in zip(part, self._draft([job for _, job in part]), strict=True):
                proposals[index] = proposal
        return proposals

    def close(self, sessions: Sequence[int]) -> None:
        for number in sessions:
            session = self._sessions.pop(number, None)
            if session is not None:
                self._forget(session)

    def _extend(self, session: NeuralSession, extension: Extension) -> None:
        session.tokens.extend(extension.tokens)
        for chunk in extension.features:
            if session.is_broken:
                break
            rows_RTD = self._decoded(chunk)
            if not bool(rows_RTD.abs().amax() < _LARGEST):
                _log.error("hidden states of a sequence are not finite or too large; it gets no drafts")
                self._forget(session)
                session.is_broken = True
                break
            self._queue(session, chunk.first, rows_RTD)
        # The token after a row is read with it, and the newest one is the anchor: older ones are of no use.
        excess = session.first_row + 1 - session.first_token
        if session.rows_RTD is not None and excess > 0:
            del session.tokens[:excess]
            session.first_token += excess

    def _queue(self, session: NeuralSession, first: int, rows_RTD: torch.Tensor) -> None:
        if session.rows_RTD is None or first != session.end:
            self._forget(session)
            session.context, session.first_row = Context(first), first
            session.rows_RTD = rows_RTD
        else:
            session.rows_RTD = torch.cat((session.rows_RTD, rows_RTD))
        # The newest row stays: a draft begins with it.
        while (waiting := session.rows_RTD.shape[0]) > _LAZY_ROWS:
            count = min(waiting - 1, _CHUNK_ROWS, session.length - 1 - session.first_row)
            if count <= 0:
                break
            self._absorb(session, count)
            self._done(session, count)

    def _span(self, session: NeuralSession, count: int, extra: int = 0) -> Span:
        """The first `count` rows that wait, with blocks for `extra` more."""
        context = session.context
        assert context is not None
        first = session.first_row - context.first
        self._pool.reach(context, first + count + extra)
        context.num_rows = first + count
        return Span(context, first, count)

    def _done(self, session: NeuralSession, count: int) -> None:
        """The first `count` rows that waited have KV."""
        assert session.rows_RTD is not None
        assert session.context is not None
        session.rows_RTD = session.rows_RTD[count:]
        session.first_row += count
        self._pool.slide(session.context)

    def _forget(self, session: NeuralSession) -> None:
        if session.context is not None:
            self._pool.release(session.context)
        session.context = session.rows_RTD = None

    def _decoded(self, chunk: Features) -> torch.Tensor:
        flat = torch.frombuffer(bytearray(chunk.data), dtype=_DTYPES[chunk.dtype])
        return flat.view(chunk.shape).to(self._device, self._dtype)
