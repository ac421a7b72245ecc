"""A replica's line to the D-cut actor: reports go up, budgets come down."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from services.dcut.messages import Budget, Member, Report, Role, decode_budget, encode

_log = logging.getLogger(__name__)

Exchange = Callable[[bytes], Awaitable[bytes]]

MAX_BACKOFF_S = 2.0  # below the time that a new actor takes to settle
GOODBYE_LEASE_S = 1e-3  # a lease that has ended before anyone reads of it
_EMPTY = Budget(version=-1, ttl_s=0.0, members=())


@dataclass(frozen=True, slots=True)
class _Received:
    budget: Budget
    at: float


class FleetLink:
    """Reports every `period_s` and keeps the last good budget.

    The actor is never needed: while it is away, slow or talks nonsense, the last
    known good view stands, and the link tries again with growing pauses.
    Reading is thread-safe, since a budget is replaced as a whole.
    """

    def __init__(
        self,
        exchange: Exchange,
        report: Callable[[], Report],
        period_s: float = 0.25,
        *,
        timeout_s: float = 2.0,
    ) -> None:
        self._exchange = exchange
        self._report = report
        self._period_s = period_s
        self._timeout_s = timeout_s
        self._received = _Received(_EMPTY, 0.0)
        self._task: asyncio.Task[None] | None = None
        self._failures_in_a_row = 0
        self.num_failures = 0

    @property
    def budget(self) -> Budget:
        """The last known good one; version -1 and no members before the first."""
        return self._received.budget

    @property
    def is_fresh(self) -> bool:
        """Whether the budget is younger than its time to live."""
        received = self._received
        return time.monotonic() - received.at < received.budget.ttl_s

    def members(self, role: Role | None = None, kind: str | None = None) -> tuple[Member, ...]:
        """Replicas of the last known good view, of one role and kind where given."""
        return tuple(
            member
            for member in self._received.budget.members
            if (role is None or member.role == role) and (kind is None or member.kind == kind)
        )

    async def start(self) -> None:
        """Registers once, so that a replica is known when it becomes ready, and goes on in the background."""
        if self._task is not None:
            raise RuntimeError("the link has been started already")
        await self._exchange_once(self._report)
        self._task = asyncio.create_task(self._run(), name="fleet-link")

    async def stop(self) -> None:
        """Ends reporting and says goodbye, so that nobody is sent here any more."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await self._exchange_once(self._goodbye)

    async def _run(self) -> None:
        # Up to Python 3.11 wait_for may swallow the cancellation that `stop` sends.
        while self._task is not None:
            await asyncio.sleep(self._pause_s())
            await self._exchange_once(self._report)

    def _pause_s(self) -> float:
        if self._failures_in_a_row == 0:
            return self._period_s * self._received.budget.pace
        pause = min(self._period_s * 2.0 ** min(self._failures_in_a_row, 16), max(MAX_BACKOFF_S, self._period_s))
        return pause * random.uniform(0.5, 1.0)  # so that a fleet does not come back in step

    async def _exchange_once(self, report: Callable[[], Report]) -> None:
        try:
            reply = await asyncio.wait_for(self._exchange(encode(report())), self._timeout_s)
            budget = decode_budget(reply)
        except Exception as error:  # whatever the actor or the way to it does, the replica works on
            self._failures_in_a_row += 1
            self.num_failures += 1
            if self._failures_in_a_row == 1:
                _log.warning(
                    "no budget from the D-cut actor, keeping the last one: %s: %s", type(error).__name__, error
                )
            return
        if self._failures_in_a_row:
            _log.info("the D-cut actor answers again after %d failures", self._failures_in_a_row)
        self._failures_in_a_row = 0
        self._received = _Received(self._merged(budget), time.monotonic())

    def _merged(self, budget: Budget) -> Budget:
        """A new actor has heard few replicas yet; whom it does not know may be alive all the same."""
        if budget.settled:
            return budget
        known = {member.replica for member in budget.members}
        missed = tuple(member for member in self._received.budget.members if member.replica not in known)
        return replace(budget, members=budget.members + missed)

    def _goodbye(self) -> Report:
        return replace(self._report(), lease_s=GOODBYE_LEASE_S)
