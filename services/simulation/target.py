"""Target replicas in virtual time: the engine's rounds around the real D-cut."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import simpy

from services.dcut.costs.drafts import DraftWait
from services.dcut.costs.steps import StepCosts
from services.dcut.local.dcut import LocalDcut
from services.dcut.local.guide import Guide
from services.dcut.local.messages import Candidate, Offer, StepLoad, Verified
from services.requests.speculation import MAX_DRAFT_TOKENS
from services.simulation.config import TargetConfig
from services.simulation.drafter import DrafterReplica, Job
from services.simulation.workload import Request, Workload

_RECHOICE_ROUNDS = 8
_MAX_SWITCHES = 2
_LOST_S = 0.06  # a draft is not waited for any longer


@dataclass(slots=True, eq=False)
class Running:
    """A request at this replica."""

    request: Request
    drafter: DrafterReplica | None
    job: Job | None = None  # it waits for
    asked_s: float = 0.0
    asked: int = 0
    offer: tuple[float, ...] = ()
    switches: int = 0


Find = Callable[[str], DrafterReplica | None]  # a place at a replica of that kind


class TargetReplica:
    """`find` finds a place at a drafter; `guide` is the newest budget's, for the adaptive policy."""

    def __init__(
        self,
        env: simpy.Environment,
        name: str,
        config: TargetConfig,
        table: StepCosts,
        dcut: LocalDcut,
        workload: Workload,
        limit: int,
        rpc_s: float,
        find: Find,
        guide: Callable[[], Guide] | None,
        on_end: Callable[[Request], None],
    ) -> None:
        self.name = name
        self.dcut = dcut
        self.is_alive = True
        self.waiting: deque[tuple[Request, DrafterReplica | None]] = deque()
        self.running: list[Running] = []
        self._env, self._config, self._table, self._workload = env, config, table, workload
        self._limit, self._rpc_s, self._find, self._guide, self._on_end = limit, rpc_s, find, guide, on_end
        self._round = 0
        self._wake = env.event()
        env.process(self._run())

    @property
    def load(self) -> int:
        return len(self.waiting) + len(self.running)

    def submit(self, request: Request, drafter: DrafterReplica | None) -> None:
        self.waiting.append((request, drafter))
        if not self._wake.triggered:
            self._wake.succeed()

    def die(self) -> list[Request]:
        """Its requests, which go on elsewhere from what they have emitted."""
        self.is_alive = False
        left = [entry.request for entry in self.running] + [request for request, _ in self.waiting]
        for entry in self.running:
            self._leave_drafter(entry)
        for request in left:
            request.uncomputed = request.context
        self.running, self.waiting = [], deque()
        return left

    def _run(self) -> Generator[simpy.Event, Any, None]:
        while self.is_alive:
            self._admit()
            if not self.running:
                self._wake = self._env.event()
                yield self._wake
                continue
            yield from self._gather()
            if self.is_alive:
                yield from self._step()

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self._config.max_sequences:
            request, drafter = self.waiting.popleft()
            self.dcut.open(request.number, request.task, is_greedy=True)
            self.running.append(Running(request, drafter))

    def _gather(self) -> Generator[simpy.Event, Any, None]:
        """Waits for drafts as long as the real patience says."""
        decoding = [entry for entry in self.running if not entry.request.uncomputed]
        pending = [entry for entry in decoding if entry.job is not None]
        if not pending:
            return
        asked_s = max(entry.asked_s for entry in pending)
        load = self._load(decoding)
        patience_s = self.dcut.patience_s(len(decoding) - len(pending), len(pending), load)
        until = asked_s + max(patience_s, 0.002) + self._rpc_s
        if len(decoding) == len(pending) and not load.prefill:
            until = asked_s + _LOST_S  # nothing else to do
        replies = simpy.AllOf(self._env, [entry.job.reply for entry in pending if entry.job is not None])
        started = self._env.now
        yield replies | self._env.timeout(max(until - self._env.now, 0.0))
        if replies.triggered:
            yield self._env.timeout(max(asked_s + self._rpc_s - self._env.now, 0.0))
        self.dcut.observe_pauses(self._env.now - started, started - asked_s)
        self._collect(pending)

    def _collect(self, pending: list[Running]) -> None:
        waits: dict[int, DraftWait] = {}
        for entry in pending:
            job, drafter = entry.job, entry.drafter
            assert job is not None
            if job.reply.triggered and drafter is not None:
                entry.offer = self._workload.draft(entry.request.qualities[drafter.kind], entry.asked)
                took_s = self._env.now - entry.asked_s
                waits[id(job)] = DraftWait(drafter.kind, job.sequences, job.longest, took_s, job.busy_s, self._env.now)
            elif self._env.now - entry.asked_s < _LOST_S - 1e-9:
                continue  # still on its way
            entry.job = None
        for wait in waits.values():
            self.dcut.observe_wait(wait)

    def _step(self) -> Generator[simpy.Event, Any, None]:
        ready = [entry for entry in self.running if not entry.request.uncomputed and entry.job is None]
        load = self._load(ready)
        kept = self.dcut.keep([Offer(entry.request.number, entry.offer) for entry in ready], load)
        prefill = self._prefill(load.prefill)
        rows = len(ready) + sum(kept)
        if not rows and not prefill:
            return
        seconds = float(self._table.seconds(max(rows, 1), load.context, sum(count for _, count in prefill)))
        yield self._env.timeout(seconds + self._config.overhead_ms / 1e3)
        if not self.is_alive:
            return
        self.dcut.observe_step(rows, load.context, load.prefill, seconds)
        verified = []
        for entry, count in zip(ready, kept, strict=True):
            accepted = self._workload.accepted(entry.offer[:count])
            entry.offer = ()
            self._emit(entry, accepted + 1)
            entry.request.rounds += 1
            self.dcut.observe_round(entry.request.number, accepted + 1)
            if count:
                verified.append(Verified(entry.request.number, count, accepted))
        self.dcut.observe_verified(verified)
        for entry, count in prefill:
            entry.request.uncomputed -= count
            if not entry.request.uncomputed:
                self._emit(entry, 1)
        self._end_finished()
        self._ask()

    def _ask(self) -> None:
        if not self._limit:
            return
        if self._guide is not None:
            self.dcut.follow(self._guide())
        self._round += 1
        candidates, by_number = [], {}
        for entry in self.running:
            if entry.request.uncomputed or entry.job is not None:
                continue
            self._settle(entry)
            drafter, number = entry.drafter, entry.request.number
            if drafter is None:
                continue
            limit = min(self._limit, entry.request.answer - entry.request.emitted - 1)
            if self._guide is not None:
                limit = min(limit, self.dcut.limit(number, drafter.kind))
            candidates.append(Candidate(number, drafter.kind, False, min(limit, MAX_DRAFT_TOKENS)))
            by_number[number] = entry
        if not candidates:
            return
        asks = self.dcut.ask(candidates, self._load([e for e in self.running if not e.request.uncomputed]))
        by_drafter: dict[DrafterReplica, list[tuple[Running, int]]] = {}
        for number, length in asks:
            entry = by_number[number]
            assert entry.drafter is not None
            by_drafter.setdefault(entry.drafter, []).append((entry, length))
        for drafter, entries in by_drafter.items():
            job = drafter.ask(len(entries), max(length for _, length in entries))
            for entry, length in entries:
                entry.job, entry.asked, entry.asked_s = job, length, self._env.now

    def _settle(self, entry: Running) -> None:
        """Another drafter where its own has died, or another kind promises more."""
        if entry.drafter is not None and not entry.drafter.is_alive:
            entry.drafter = self._find(entry.drafter.kind)
        number = entry.request.number
        if self._guide is None or entry.switches >= _MAX_SWITCHES or (number + self._round) % _RECHOICE_ROUNDS:
            return
        better = self.dcut.better_kind(number, tuple(entry.request.qualities))
        other = self._find(better) if better is not None else None
        if other is not None:
            self._leave_drafter(entry)
            entry.drafter = other
            entry.switches += 1

    def _load(self, decoding: list[Running]) -> StepLoad:
        batch, most = len(decoding), self._config.max_step_rows
        context = sum(entry.request.context for entry in decoding) / max(batch, 1)
        pending = sum(entry.request.uncomputed for entry in self.running)
        return StepLoad(batch, context, max(min(pending, most - batch), 0), max(most - batch, 0))

    def _prefill(self, budget: int) -> list[tuple[Running, int]]:
        parts = []
        for entry in self.running:
            count = min(entry.request.uncomputed, budget)
            if count:
                parts.append((entry, count))
                budget -= count
        return parts

    def _emit(self, entry: Running, count: int) -> None:
        request = entry.request
        if not request.first_s:
            request.first_s = self._env.now
        request.emitted = min(request.emitted + count, request.answer)

    def _end_finished(self) -> None:
        for entry in [entry for entry in self.running if entry.request.emitted >= entry.request.answer]:
            self.running.remove(entry)
            self.dcut.close(entry.request.number)
            self._leave_drafter(entry)
            entry.request.ended_s = self._env.now
            self._on_end(entry.request)

    @staticmethod
    def _leave_drafter(entry: Running) -> None:
        if entry.drafter is not None:
            entry.drafter.sessions -= 1
        entry.drafter = None
