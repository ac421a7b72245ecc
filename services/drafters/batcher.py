"""Drafts everything that has arrived in one batch, again and again, off the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from services.drafters.drafter import Drafter
from services.drafters.intake import Intake
from services.drafters.metrics import DrafterMetrics
from services.drafters.rounds import Batch, Drafted
from services.drafters.worker import run_batch

_log = logging.getLogger(__name__)
_SMOOTHING = 0.2
_EXPIRY_PERIOD_S = 1.0

Deliver = Callable[[Batch, Drafted], None]


class Batcher:
    """One worker thread; while it computes, arrivals gather into the next batch."""

    def __init__(
        self,
        drafter: Drafter,
        intake: Intake,
        metrics: DrafterMetrics,
        deliver: Deliver,
        *,
        window_s: float,
        max_pending_bytes: int,
    ) -> None:
        self._drafter = drafter
        self._intake = intake
        self._metrics = metrics
        self._deliver = deliver
        self._window_s = window_s
        self._max_pending_bytes = max_pending_bytes
        self._arrived = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._expected_s = 0.0  # time of the drafting part of a batch
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="drafter")
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._run()), asyncio.create_task(self._expire())]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self._executor.shutdown)

    @property
    def is_running(self) -> bool:
        return bool(self._tasks) and not any(task.done() for task in self._tasks)

    def notify(self) -> None:
        """There is something new in the intake."""
        self._arrived.set()
        if self._intake.pending.num_bytes > self._max_pending_bytes:
            self._has_room.clear()

    async def room(self) -> None:
        """Returns when more input may be read."""
        await self._has_room.wait()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._arrived.wait()
            if self._window_s:
                await asyncio.sleep(self._window_s)
            self._arrived.clear()
            batch = self._intake.pending.take(loop.time(), self._expected_s)
            self._has_room.set()
            if batch.is_empty:
                continue
            drafted = await loop.run_in_executor(self._executor, run_batch, self._drafter, batch)
            self._account(batch, drafted)
            self._intake.drop_sessions(drafted.lost)
            try:
                self._deliver(batch, drafted)
            except Exception:
                _log.exception("a batch of %d drafts could not be delivered", len(drafted.proposals))

    async def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_EXPIRY_PERIOD_S)
            self._intake.expire(loop.time())
            if not self._intake.pending.is_empty:
                self.notify()

    def _account(self, batch: Batch, drafted: Drafted) -> None:
        metrics = self._metrics
        metrics.batches += 1
        metrics.failed_batches += drafted.failed
        metrics.failed_in_a_row = metrics.failed_in_a_row + 1 if drafted.failed else 0
        metrics.shed += len(batch.shed)
        metrics.drafts += len(drafted.proposals)
        metrics.draft_tokens += sum(len(proposal.tokens) for _, proposal in drafted.proposals)
        metrics.last_batch = len(batch.asks)
        metrics.busy_s += drafted.busy_s
        if batch.asks:
            self._expected_s += _SMOOTHING * (drafted.draft_s - self._expected_s)
        elif batch.shed:
            # Nothing was measured; forget slowly, or one slow batch would shed every ask for ever.
            self._expected_s /= 2
