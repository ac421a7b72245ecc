"""Finds a drafter for each request."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable

from services.dcut.messages import Budget
from services.metrics.defined.router import ROUTE_SECONDS
from services.metrics.readings import Histogram
from services.requests.task import name_of
from services.router.config import RouterConfig
from services.router.kinds import KindChooser
from services.router.lease_client import LeaseClient
from services.router.messages import RouteReply, RouteRequest
from services.router.policy import rank_drafters
from services.rpc.channels import ChannelPool
from services.rpc.credential import Credential

_MAX_RECENT = 4096


class Router:
    """Ranks drafters by the fleet view, reserves a place at the best that answers.

    `budget` gives the last known good one of the D-cut actor. Belongs to one event loop.
    """

    def __init__(
        self,
        config: RouterConfig,
        budget: Callable[[], Budget],
        clock: Callable[[], float] = time.monotonic,
        credential: Credential | None = None,
    ) -> None:
        self._config = config
        self._budget = budget
        self._chooser = KindChooser(config.preference, config.bandit)
        self._clock = clock
        self._channels = ChannelPool(config.channels, credential)
        self.routes: Counter[tuple[str, str, str]] = Counter()  # by class, drafter asked for and chosen
        self.seconds = Histogram(ROUTE_SECONDS)
        self._leases = LeaseClient(self._channels, timeout_s=config.reserve_timeout_s, attempts=config.reserve_attempts)
        # Reservations that the load reports do not show yet: (time, replica, sequences).
        self._recent: deque[tuple[float, str, int]] = deque(maxlen=_MAX_RECENT)

    @property
    def failed_reservations(self) -> int:
        return self._leases.failures

    async def route(self, request: RouteRequest) -> RouteReply:
        """Never raises for a missing, full or dead drafter: the reply then has no lease."""
        started = self._clock()
        reply = await self._route(request)
        self.seconds.observe(self._clock() - started)
        self.routes[name_of(request.task), request.drafter, reply.kind] += 1
        return reply

    async def _route(self, request: RouteRequest) -> RouteReply:
        budget = self._budget()
        members = budget.members
        await self._channels.keep_only({m.address for m in members if m.role == "drafter"})
        ranked = rank_drafters(
            request.drafter,
            request.target,
            members,
            preference=self._kinds(request, budget),
            per_target=self._config.drafters_per_target,
            sequences=request.sequences,
            pending=self._pending(),
        )
        reservation = await self._leases.reserve(request.request_id, request.sequences, ranked)
        if reservation is None:
            attempts = min(len(ranked), self._config.reserve_attempts)
            return RouteReply(kind="none", replica="", lease=b"", attempts=attempts)
        replica = reservation.member.replica
        self._recent.append((self._clock(), replica, request.sequences))
        return RouteReply(
            kind=reservation.lease.kind,
            replica=replica,
            lease=reservation.lease.SerializeToString(),
            attempts=reservation.attempts,
        )

    def take_unserved(self) -> tuple[str, ...]:
        """Kinds that were wanted since the last call and had no replica."""
        return self._chooser.take_unserved()

    async def close(self) -> None:
        await self._channels.close()

    def _kinds(self, request: RouteRequest, budget: Budget) -> tuple[str, ...]:
        """Kinds for the request, best first; notes where the best one is missing."""
        alive = {member.kind for member in budget.members if member.role == "drafter" and member.address}
        if request.drafter != "auto":
            self._chooser.note(request.drafter, alive)
            return self._config.preference
        return self._chooser.order(request.task, alive, budget)

    def _pending(self) -> Counter[str]:
        oldest = self._clock() - 2 * self._config.report_period_s  # one period up, one down
        while self._recent and self._recent[0][0] < oldest:
            self._recent.popleft()
        pending: Counter[str] = Counter()
        for _, replica, sequences in self._recent:
            pending[replica] += sequences
        return pending
