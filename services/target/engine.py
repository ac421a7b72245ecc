"""The engine of a target replica: its loop, in a thread of its own."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace

from transformers import PreTrainedTokenizerBase

from services.dcut.cluster.messages import RoundCost, Use
from services.dcut.costs.steps import StepCosts
from services.dcut.local.dcut import LocalDcut
from services.dcut.local.guide import NO_GUIDE, Guide
from services.dcut.local.messages import DcutSnapshot
from services.requests.sampling import SamplingParams
from services.sampling.noise import noise_key
from services.target.config import EngineConfig
from services.target.counters import EngineCounters
from services.target.draft_control import DraftControl
from services.target.drafting.interface import DraftingDesk, Lease
from services.target.emission import Emission, Finish, FinishReason, Statistics
from services.target.grammar.compiler import GrammarCompiler
from services.target.kv.blocks import BlockManager
from services.target.kv.pool import KVPool
from services.target.model.loader import LoadedTarget
from services.target.model.spec import BLOCK
from services.target.sampling.pipeline import SamplingState
from services.target.scheduler import Scheduler, Work
from services.target.sequence import Progress, Request, Sequence
from services.target.stepper import Stepper
from services.target.text import Detokenizer, StopScanner

log = logging.getLogger(__name__)

_IDLE_WAIT_S = 0.5
_PENDING_WAIT_S = 0.005
_MAX_FAILED_STEPS = 3


class EngineFull(RuntimeError):
    """The queue for admission is full; the request may be tried again later."""


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """What the engine does at the moment."""

    num_running: int
    num_waiting: int
    num_steps: int
    num_preemptions: int
    num_free_blocks: int
    num_blocks: int


class Engine:
    """Takes requests from any thread; everything else happens in its own."""

    def __init__(
        self,
        target: LoadedTarget,
        tokenizer: PreTrainedTokenizerBase,
        config: EngineConfig,
        desk: DraftingDesk,
        table: StepCosts | None = None,
        guide: Callable[[], Guide] = lambda: NO_GUIDE,
    ) -> None:
        """`table`: step times as measured beforehand; without it they are learned from the steps.

        `guide` tells what the fleet says of drafts; it is called in every step and must not block.
        """
        self.target = target
        self.config = config
        self.grammars = GrammarCompiler(tokenizer, target.spec.vocabulary, target.spec.eos_ids, config.grammar)
        self._tokenizer = tokenizer
        self._desk = desk
        num_blocks = (config.kv_memory_mb << 20) // KVPool.bytes_per_block(target.spec, target.dtype)
        if num_blocks < 1:
            raise ValueError(f"kv_memory_mb: {config.kv_memory_mb} is too little; one block of KV needs more")
        pool = KVPool(target.spec, num_blocks, target.dtype, target.device)
        self.max_context = min(target.spec.max_positions, num_blocks * BLOCK)
        blocks = BlockManager(num_blocks, prefix_cache=config.prefix_cache)
        self._scheduler = Scheduler(blocks, config.max_sequences, config.max_step_rows)
        self.counters = EngineCounters()
        self._drafting = DraftControl(desk, self._scheduler, config, self.counters, table, guide)
        self._stepper = Stepper(
            target, pool, tokenizer, desk, self._scheduler, config.hidden_memory_mb << 20, self.counters
        )
        self._inbox: deque[Callable[[], None]] = deque()
        self._sequences: dict[str, list[Sequence]] = {}
        self._ids = itertools.count(1)
        self._num_queued = 0
        self._queued: Counter[str] = Counter()  # by tenant
        self._queue_lock = threading.Lock()
        self._failed_steps = 0
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Ends every request as aborted and joins the thread."""
        self._is_stopping = True
        self._desk.wake()
        self._thread.join(timeout_s)
        self.grammars.close()

    @property
    def is_healthy(self) -> bool:
        return self._thread.is_alive() and self._failed_steps < _MAX_FAILED_STEPS

    @property
    def load(self) -> EngineLoad:
        scheduler = self._scheduler
        return EngineLoad(
            len(scheduler.running),
            len(scheduler.waiting),
            self.counters.steps,
            scheduler.num_preemptions,
            scheduler.blocks.num_free,
            scheduler.blocks.num_blocks,
        )

    @property
    def uses(self) -> tuple[tuple[Use, ...], tuple[RoundCost, ...]]:
        """What drafts came to since the start, and what a round with each kind costs now."""
        dcut = self._drafting.dcut
        return dcut.lessons.tally.uses(), dcut.round_costs

    @property
    def local_dcut(self) -> LocalDcut:
        """To look at: it belongs to the engine's thread."""
        return self._drafting.dcut

    def admit(self, request: Request) -> Request:
        """Checks a request against the model and completes its max_tokens, without queuing it.

        Raises ValueError naming the field, the value and the allowed range.
        """
        sampling, length = request.sampling, len(request.prompt)
        if length == 0:
            raise ValueError("prompt: it is empty; it must have at least 1 token")
        vocabulary = self.target.spec.vocabulary
        if max(request.prompt) >= vocabulary:
            raise ValueError(f"prompt: token id {max(request.prompt)} is out of range; ids must be below {vocabulary}")
        if length >= self.max_context:
            raise ValueError(
                f"prompt: {length} tokens do not fit; the context of {self.max_context} tokens leaves room for at "
                f"most {self.max_context - 1}, one being needed for the answer"
            )
        room = self.max_context - length
        if sampling.max_tokens is not None and sampling.max_tokens > room:
            raise ValueError(
                f"max_tokens: {sampling.max_tokens} is out of range; with a prompt of {length} tokens it must be at "
                f"least 1 and at most {room} (context {self.max_context})"
            )
        if sampling.seed is None:
            raise ValueError("seed: it is missing; the gateway sets one for every request")
        sampling.check_vocabulary(vocabulary)
        assert (sampling.response_format is None) == (request.grammar is None), "the grammar is compiled before"
        if sampling.max_tokens is None:
            sampling = replace(sampling, max_tokens=room, min_tokens=min(sampling.min_tokens, room))
        request = replace(request, sampling=sampling)
        self._check_progress(request)
        return request

    def _check_progress(self, request: Request) -> None:
        sampling, vocabulary = request.sampling, self.target.spec.vocabulary
        assert sampling.max_tokens is not None
        if len({begun.choice for begun in request.progress}) < len(request.progress):
            raise ValueError("progress: a choice is named twice; each may be named once")
        for begun in request.progress:
            if not 0 <= begun.choice < sampling.n:
                raise ValueError(f"progress: choice {begun.choice} is out of range; it must be below n ({sampling.n})")
            if len(begun.tokens) >= sampling.max_tokens:
                raise ValueError(
                    f"progress: {len(begun.tokens)} tokens are too many; a choice that goes on has fewer than "
                    f"max_tokens ({sampling.max_tokens})"
                )
            if max(begun.tokens, default=0) >= vocabulary:
                raise ValueError(
                    f"progress: token id {max(begun.tokens)} is out of range; ids must be below {vocabulary}"
                )

    def submit(self, request: Request) -> None:
        """Queues a request; its sink hears of every step and of the end.

        Raises ValueError as `admit` does, and EngineFull: also for a tenant that would hold more places than it
        leaves free, so that others find one.
        """
        request = self.admit(request)
        count, tenant = len(request.choices), request.tenant
        with self._queue_lock:
            left = self.config.max_queue - self._num_queued
            if count > left:
                raise EngineFull(f"{self._num_queued} sequences wait already; at most {self.config.max_queue} may")
            if tenant and self._queued[tenant] + count > left:
                raise EngineFull(f"{self._queued[tenant]} sequences of this key wait, and {left} places are left")
            self._num_queued += count
            self._queued[tenant] += count
        self._post(lambda: self._enqueue(request))

    def abort(self, request_id: str) -> None:
        self._post(lambda: self._cancel(request_id))

    def attach(self, request_id: str, lease: Lease) -> None:
        """Hands the request's sequences to the drafter that the router chose."""
        self._post(lambda: self._attach(request_id, lease))

    def dcut(self) -> Future[DcutSnapshot]:
        """What is known of costs and drafts now, told between two steps."""
        told: Future[DcutSnapshot] = Future()

        def tell() -> None:
            if told.set_running_or_notify_cancel():
                told.set_result(self._drafting.snapshot())

        self._post(tell)
        return told

    def _post(self, action: Callable[[], None]) -> None:
        self._inbox.append(action)
        self._desk.wake()

    # Everything below runs in the engine's thread.

    def _run(self) -> None:
        while not self._is_stopping:
            while self._inbox:
                self._inbox.popleft()()
            plan = self._plan()
            if plan:
                self._step(plan)
            else:
                # A draft that will never come wakes nobody.
                is_drafting = bool(self._scheduler.running)
                with self.counters.timed("waiting_for_drafts" if is_drafting else "idle"):
                    self._desk.wait(_PENDING_WAIT_S if is_drafting else _IDLE_WAIT_S)
        for sequences in list(self._sequences.values()):
            for sequence in list(sequences):
                self._finish(sequence, "abort", "")

    def _plan(self) -> list[Work]:
        with self.counters.timed("waiting_for_drafts"):
            self._drafting.gather(lambda: bool(self._inbox))
        with self.counters.timed("deciding"):
            drafts = self._drafting.collect()
        return self._scheduler.plan(lambda s: s.id in drafts.pending, lambda s: drafts.kept.get(s.id, ()))

    def _step(self, plan: list[Work]) -> None:
        started, known_s = time.perf_counter(), self.counters.known_s
        shape = self._drafting.shape(plan)
        try:
            outcomes = self._stepper.run(plan)
            self._failed_steps = 0
        except Exception as error:  # one bad step must not end the thread, and with it every request
            log.exception("a step failed")
            self._failed_steps += 1
            self.counters.failed_steps += 1
            for work in plan:
                self._finish(work.sequence, "error", f"{type(error).__name__}: {error}")
            return
        self._drafting.count(shape, outcomes)
        # Asked before anything is told: the drafters work while texts are put together.
        with self.counters.timed("deciding"):
            self._drafting.ask(outcomes)
        for outcome in outcomes:
            self._stepper.tell(outcome)
            if outcome.finish_reason is not None:
                self._release(outcome.sequence)
        seconds = time.perf_counter() - started
        self._drafting.step_ended(shape, seconds)
        self.counters.seconds["bookkeeping"] += seconds - (self.counters.known_s - known_s)

    def _enqueue(self, request: Request) -> None:
        if request.request_id in self._sequences:
            self._dequeue(request.tenant, len(request.choices))
            message = f"request_id: {request.request_id} is in use by a running request"
            finish = Finish("error", "", 0, 0, 0, Statistics("none", 0, 0, 0, 0, 0), message)
            request.sink(Emission(0, (), "", time.time(), finish=finish))
            return
        sequences = [self._new_sequence(request, begun) for begun in request.choices]
        self._sequences[request.request_id] = sequences
        for sequence in sequences:
            self._scheduler.add(sequence)
            self._drafting.open(sequence)

    def _new_sequence(self, request: Request, begun: Progress) -> Sequence:
        sampling: SamplingParams = request.sampling
        assert sampling.seed is not None
        eos = () if sampling.ignore_eos else self.target.spec.eos_ids
        state = SamplingState(
            sampling,
            noise_key(sampling.seed, begun.choice),
            frozenset(request.prompt) if sampling.has_penalties else frozenset(),
            (*eos, *sampling.stop_token_ids),
            None if request.grammar is None else request.grammar.fresh(eos),
        )
        sequence = Sequence(
            next(self._ids),
            request,
            begun.choice,
            list(request.prompt),
            state,
            Detokenizer(self._tokenizer, request.prompt),
            StopScanner(sampling.stop, include_stop=sampling.include_stop),
        )
        self._stepper.catch_up(sequence, begun.tokens)
        return sequence

    def _cancel(self, request_id: str) -> None:
        for sequence in list(self._sequences.get(request_id, ())):
            self._finish(sequence, "abort", "")

    def _attach(self, request_id: str, lease: Lease) -> None:
        for sequence in self._sequences.get(request_id, ()):
            self._desk.attach(sequence.id, lease)

    def _finish(self, sequence: Sequence, reason: FinishReason, error: str) -> None:
        self._stepper.tell_end(sequence, reason, error)
        self._release(sequence)

    def _release(self, sequence: Sequence) -> None:
        self._scheduler.remove(sequence)
        self._drafting.close(sequence.id)
        self._dequeue(sequence.tenant, 1)
        siblings = self._sequences[sequence.request.request_id]
        siblings.remove(sequence)
        if not siblings:
            del self._sequences[sequence.request.request_id]

    def _dequeue(self, tenant: str, count: int) -> None:
        with self._queue_lock:
            self._num_queued -= count
            self._queued[tenant] -= count
            if not self._queued[tenant]:
                del self._queued[tenant]
