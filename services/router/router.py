"""Finds a drafter for each request."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence

from services.dcut.messages import Member
from services.router.config import RouterConfig
from services.router.lease_client import LeaseClient
from services.router.messages import RouteReply, RouteRequest
from services.router.policy import rank_drafters
from services.rpc.channels import ChannelPool

_MAX_RECENT = 4096


class Router:
    """Ranks drafters by the fleet view, reserves a place at the best that answers.

    `members` gives the fleet view. Belongs to one event loop.
    """

    def __init__(
        self,
        config: RouterConfig,
        members: Callable[[], Sequence[Member]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._members = members
        self._clock = clock
        self._channels = ChannelPool(config.channels)
        self._leases = LeaseClient(self._channels, timeout_s=config.reserve_timeout_s, attempts=config.reserve_attempts)
        # Reservations that the load reports do not show yet: (time, replica, sequences).
        self._recent: deque[tuple[float, str, int]] = deque(maxlen=_MAX_RECENT)

    @property
    def failed_reservations(self) -> int:
        return self._leases.failures

    async def route(self, request: RouteRequest) -> RouteReply:
        """Never raises for a missing, full or dead drafter: the reply then has no lease."""
        members = self._members()
        await self._channels.keep_only({m.address for m in members if m.role == "drafter"})
        ranked = rank_drafters(
            request.drafter,
            request.target,
            members,
            preference=self._config.preference_for(request.task),
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

    async def close(self) -> None:
        await self._channels.close()

    def _pending(self) -> Counter[str]:
        oldest = self._clock() - 2 * self._config.report_period_s  # one period up, one down
        while self._recent and self._recent[0][0] < oldest:
            self._recent.popleft()
        pending: Counter[str] = Counter()
        for _, replica, sequences in self._recent:
            pending[replica] += sequences
        return pending
