"""The D-cut actor short of Ray: reports in, budgets out. Pure: the caller passes the clock."""

from __future__ import annotations

from dataclasses import replace

from services.dcut.cluster.planner import Plan, Planner
from services.dcut.config import DcutConfig
from services.dcut.fleet import Fleet
from services.dcut.messages import Budget, Member, Report, decode_report, encode

_TICK_S = 0.1  # members that come or go are told at once, everything else once in this time
_FULL_PACE_MEMBERS = 1000  # beyond so many, replicas report less often
_MAX_PACE = 4.0


class Control:
    """A budget is put together and encoded once a tick, however many ask for it."""

    def __init__(self, config: DcutConfig, now: float, first_version: int = 0) -> None:
        self._fleet = Fleet(config.budget_ttl_s, config.max_members, first_version)
        self._planner = Planner(config.cluster)
        self._plan = Plan()
        self._settles_at = now + config.settle_s
        self._gone: list[Member] = []
        self._told = b""
        self._told_at = float("-inf")

    def report(self, data: bytes, now: float) -> bytes:
        """An encoded Report in, an encoded Budget out. Raises ValueError for a malformed report."""
        return self.take(decode_report(data), now)

    def take(self, report: Report, now: float) -> bytes:
        """An encoded Budget out. Raises ValueError when the fleet is full."""
        is_known = self._fleet.register(report, now)
        self._planner.observe(report)
        return self._budget(now, is_due=not is_known or report.lease_s < _TICK_S)

    def view(self, now: float) -> bytes:
        """The encoded Budget of this moment."""
        return self._budget(now, is_due=True)

    def take_gone(self) -> list[Member]:
        """Those that have left the fleet since this was asked last."""
        gone, self._gone = self._gone, []
        return gone

    def state(self, now: float) -> Budget:
        """The members and what is decided for kinds of drafters, as of the last tick."""
        return replace(self._fleet.budget(settled=now >= self._settles_at), kinds=self._plan.kinds)

    def _budget(self, now: float, *, is_due: bool) -> bytes:
        if is_due or now - self._told_at >= _TICK_S:
            for member in self._fleet.expire(now):
                self._planner.remove(member.replica)
                self._gone.append(member)
            plan = self._planner.plan(now)
            if plan != self._plan:
                self._plan = plan
                self._fleet.change()
            budget = self._fleet.budget(settled=now >= self._settles_at)
            pace = min(max(len(budget.members) / _FULL_PACE_MEMBERS, 1.0), _MAX_PACE)
            self._told = encode(replace(budget, kinds=plan.kinds, guidance=plan.guidance, pace=pace))
            self._told_at = now
        return self._told
