"""The engine's dealings with drafts: whom to ask, how long to wait, what to verify, what to learn from it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from services.dcut.costs.steps import StepCosts
from services.dcut.local.dcut import LocalDcut
from services.dcut.local.guide import NO_GUIDE, Guide
from services.dcut.local.messages import Candidate, DcutSnapshot, Offer, StepLoad, Verified
from services.target.config import EngineConfig
from services.target.counters import NO_DRAFTER, EngineCounters
from services.target.drafting.interface import DraftingContext, DraftingDesk
from services.target.scheduler import Scheduler, Work
from services.target.sequence import Sequence
from services.target.stepper import Outcome

log = logging.getLogger(__name__)

_MAX_STALL_S = 1.0  # longer pauses are not about drafts
_RECHOICE_STEPS = 8  # between two looks at a sequence's drafter
_MAX_SWITCHES = 2  # of a request


@dataclass(frozen=True, slots=True)
class StepShape:
    """What a step was made of, noted before it changes its sequences."""

    rows: int  # of decoding sequences, drafts included
    context: float  # mean length of the decoding sequences
    prefill: int  # prompt rows


@dataclass(frozen=True, slots=True)
class Drafts:
    """What the next step may use."""

    pending: frozenset[int]  # sequences that still wait for a draft
    kept: dict[int, tuple[int, ...]]  # by sequence: the tokens worth verifying


class DraftControl:
    """Belongs to the engine's thread.

    Decisions are about speed alone, so one that fails costs that step its drafts and no more.
    """

    def __init__(
        self,
        desk: DraftingDesk,
        scheduler: Scheduler,
        config: EngineConfig,
        counters: EngineCounters,
        table: StepCosts | None = None,
        guide: Callable[[], Guide] = lambda: NO_GUIDE,
    ) -> None:
        self.dcut = LocalDcut(config.dcut, table)
        self._desk = desk
        self._scheduler = scheduler
        self._config = config
        self._guide = guide
        self._switches: dict[int, int] = {}  # of drafter kinds, by sequence
        self._asked_kinds: dict[int, str] = {}  # whose draft a sequence was asked for last
        self._counters = counters
        self._asked_at = 0.0
        self._told_at = 0.0
        self._has_asked = False  # in this round
        self._turn = 0

    def open(self, sequence: Sequence) -> None:
        sampling, task = sequence.request.sampling, sequence.request.task
        self._desk.open(
            sequence.id,
            DraftingContext(
                sampling.temperature,
                sampling.top_k,
                sampling.top_p,
                sequence.sampling.key,
                sequence.request.speculation,
                task,
            ),
            sequence.tokens,
        )
        self.dcut.open(sequence.id, task.kind if task.confidence else "", is_greedy=sampling.is_greedy)

    def close(self, sequence: int) -> None:
        self._desk.close(sequence)
        self.dcut.close(sequence)
        self._switches.pop(sequence, None)
        self._asked_kinds.pop(sequence, None)

    def gather(self, has_news: Callable[[], bool]) -> None:
        """Waits for drafts on their way while that costs less than going without those sequences."""
        if not self._has_asked:
            return
        deadline = self._asked_at + self._config.gather_ms / 1e3
        is_priced = False
        while not has_news():
            decoding = [s for s in self._scheduler.running if s.is_decoding]
            num_pending = sum(self._desk.is_pending(s.id) for s in decoding)
            if not num_pending:
                return
            if not is_priced:
                load = self._load(decoding, self._num_prefill())
                num_ready = len(decoding) - num_pending + load.prefill
                deadline = max(deadline, self._asked_at + self.dcut.patience_s(num_ready, num_pending, load))
                is_priced = True
            left = deadline - time.monotonic()
            if left <= 0:
                return
            self._desk.wait(left)

    def collect(self) -> Drafts:
        """Drafts that have arrived, cut to what is worth verifying together."""
        decoding = [s for s in self._scheduler.running if s.is_decoding]
        pending = frozenset(s.id for s in decoding if self._desk.is_pending(s.id))
        ready = [s for s in decoding if s.id not in pending][: self._scheduler.max_rows]
        guesses = [self._desk.take(s.id) for s in ready]
        started = time.perf_counter()
        offers, tokens = [], []
        for sequence, guess in zip(ready, guesses, strict=True):
            room = sequence.max_drafts
            offers.append(Offer(sequence.id, guess.probabilities[:room] if guess else ()))
            tokens.append(guess.tokens[:room] if guess else ())
        try:
            kept = self.dcut.keep(offers, self._load(ready, self._num_prefill()))
        except Exception:
            self._failed("selecting drafts")
            kept = [0] * len(ready)
        if any(tokens):
            self.dcut.observe_decision(time.perf_counter() - started)
        return Drafts(pending, {s.id: t[:n] for s, t, n in zip(ready, tokens, kept, strict=True)})

    def shape(self, plan: Seq[Work]) -> StepShape:
        """To be called before the step, which changes what its works say."""
        if self._has_asked:
            stall_s = min(max(time.monotonic() - self._told_at, 0.0), _MAX_STALL_S)
            self.dcut.observe_pauses(stall_s, self._told_at - self._asked_at)
            self._has_asked = False
        decoding = [work for work in plan if work.sequence.is_decoding]
        rows = sum(1 + len(work.drafts) for work in decoding)
        lengths = sum(len(work.sequence.tokens) for work in decoding)
        return StepShape(
            rows, lengths / max(len(decoding), 1), sum(work.count for work in plan if not work.sequence.is_decoding)
        )

    def count(self, shape: StepShape, outcomes: Seq[Outcome]) -> None:
        """To be called after a step and before `ask`, which changes whose drafts are meant."""
        self._counters.steps += 1
        self._counters.prompt_rows += shape.prefill
        self._counters.decode_rows += shape.rows
        for outcome in outcomes:
            kind = self._asked_kinds.get(outcome.sequence.id, NO_DRAFTER) if outcome.num_verified else NO_DRAFTER
            self._counters.count(outcome, kind)

    def ask(self, outcomes: Seq[Outcome]) -> None:
        """Learns from the step's verdicts and asks for the next drafts where they are worth it."""
        finished = {o.sequence.id for o in outcomes if o.finish_reason is not None}
        decoding = [o.sequence for o in outcomes if o.sequence.id not in finished and o.sequence.is_decoding]
        try:
            self._learn(outcomes)
            self.dcut.follow(self._guide())
            self._choose_kinds(decoding)
            candidates = [c for c in map(self._candidate, decoding) if c is not None]
            self._asked_kinds.update((candidate.sequence, candidate.kind) for candidate in candidates)
            asks = self.dcut.ask(candidates, self._next_load(finished)) if candidates else []
        except Exception:
            self._failed("choosing whom to ask")
            asks = []
        self._desk.ask(asks)
        if asks:
            self._asked_at, self._has_asked = time.monotonic(), True

    def step_ended(self, shape: StepShape, seconds: float) -> None:
        """Everything has been told; the step took so long with all that the engine did for it."""
        self._told_at = time.monotonic()
        self.dcut.observe_step(shape.rows, shape.context, shape.prefill, seconds)

    def snapshot(self) -> DcutSnapshot:
        return self.dcut.snapshot()

    def _learn(self, outcomes: Seq[Outcome]) -> None:
        for outcome in outcomes:
            if outcome.is_round:
                self.dcut.observe_round(outcome.sequence.id, len(outcome.tokens))
        self.dcut.observe_verified(
            [Verified(o.sequence.id, o.num_verified, o.num_accepted) for o in outcomes if o.num_verified]
        )
        for wait in self._desk.take_waits():
            self.dcut.observe_wait(wait)
            self._counters.waits.observe(wait.seconds, wait.kind)
            self._counters.busy_s[wait.kind] += wait.busy_s

    def _failed(self, what: str) -> None:
        self.dcut.counters.failures += 1
        log.exception("%s failed; this step goes without", what)

    def _candidate(self, sequence: Sequence) -> Candidate | None:
        limit = self._draft_limit(sequence)
        source = self._desk.source_of(sequence.id) if limit > 0 else None
        if source is None:
            return None
        limit = min(limit, source.max_draft)
        if not source.is_local and _is_ours_to_choose(sequence):
            limit = min(limit, self.dcut.limit(sequence.id, source.kind))
        return Candidate(sequence.id, source.kind, source.is_local, limit, sequence.request.speculation.force)

    def _draft_limit(self, sequence: Sequence) -> int:
        """The client's bound, or the default, and no more than the answer has room for."""
        speculation = sequence.request.speculation
        if speculation.is_off:
            return 0
        limit = speculation.max_draft_tokens
        return min(self._config.default_draft_tokens if limit is None else limit, sequence.max_drafts)

    def _choose_kinds(self, decoding: Seq[Sequence]) -> None:
        """Moves requests on to a drafter that promises more, where the choice is ours. A few of them a step."""
        kinds: Collection[str] | None = None
        self._turn += 1
        for sequence in decoding:
            if (sequence.id + self._turn) % _RECHOICE_STEPS or sequence.request.speculation.drafter != "auto":
                continue
            if self._switches.get(sequence.id, 0) >= _MAX_SWITCHES:
                continue
            kinds = self._desk.connected_kinds() if kinds is None else kinds
            better = self.dcut.better_kind(sequence.id, kinds)
            if better is not None:
                self._switches[sequence.id] = self._switches.get(sequence.id, 0) + 1
                self.dcut.counters.switches += 1
                self._desk.prefer(sequence.id, better)

    def _next_load(self, finished: Collection[int]) -> StepLoad:
        decoding = [s for s in self._scheduler.running if s.is_decoding and s.id not in finished]
        return self._load(decoding, self._num_prefill())

    def _load(self, decoding: Seq[Sequence], prefill: int) -> StepLoad:
        batch, max_rows = len(decoding), self._scheduler.max_rows
        context = sum(len(s.tokens) for s in decoding) / max(batch, 1)
        return StepLoad(batch, context, max(min(prefill, max_rows - batch), 0), max(max_rows - batch, 0))

    def _num_prefill(self) -> int:
        """Prompt rows that could be computed now."""
        scheduler = self._scheduler
        pending = sum(s.num_pending for s in scheduler.running if not s.is_decoding)
        if scheduler.waiting and len(scheduler.running) < scheduler.max_sequences:
            pending += scheduler.waiting.head.num_pending
        return pending


def _is_ours_to_choose(sequence: Sequence) -> bool:
    """What a client has named, a kind or a length, is not cut by the fleet's limits."""
    speculation = sequence.request.speculation
    return speculation.drafter == "auto" and speculation.max_draft_tokens is None
