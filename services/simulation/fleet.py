"""A whole fleet in virtual time, run by the service's own router, D-cuts and rechoice."""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import simpy

from services.dcut.cluster.planner import Plan, Planner
from services.dcut.costs.steps import StepCosts, StepSample
from services.dcut.local.config import LocalDcutConfig
from services.dcut.local.dcut import LocalDcut
from services.dcut.local.guide import NO_GUIDE, Guide, guide_of
from services.dcut.messages import Budget, Member, Report
from services.requests.task import Task
from services.router.kinds import KindChooser
from services.router.policy import choose_target, rank_drafters
from services.simulation.config import DrafterConfig, PolicyConfig, SimulationConfig
from services.simulation.drafter import DrafterReplica
from services.simulation.target import TargetReplica
from services.simulation.workload import Finished, Request, Workload

_TICK_S = 0.25


@dataclass(slots=True)
class _Used:
    """Replica seconds: what would be paid for."""

    target_s: float = 0.0
    drafter_s: float = 0.0


class Fleet:
    """Built anew for each run. `finished` and `used` are what it is judged by, `plan` is the actor's newest."""

    def __init__(self, config: SimulationConfig, policy: PolicyConfig) -> None:
        self.env = simpy.Environment()
        self.finished, self.used = Finished(), _Used()
        self.num_deaths = self.num_resumed = 0
        self._config, self._policy = config, policy
        self._workload = Workload(config.work, config.drafters, config.seed)
        self._fates = random.Random(config.seed + 3)
        self._table = StepCosts(
            StepSample(point.rows, point.context, point.prefill, point.ms / 1e3) for point in config.target.steps
        )
        self.planner = Planner(config.cluster)
        self._chooser = KindChooser([pool.kind for pool in config.drafters], config.router.bandit)
        self._budget = Budget(0, 5.0, ())
        self.plan, self._guide = Plan(), NO_GUIDE
        self._targets: dict[str, TargetReplica] = {}
        self._drafters: dict[str, DrafterReplica] = {}
        self._coming = {drafter.kind: 0 for drafter in config.drafters}  # replicas that are starting
        self._num_targets = 0
        for _ in range(config.target.replicas):
            self._start_target()
        if policy.name != "plain":
            for pool in config.drafters:
                for _ in range(pool.replicas):
                    self._start_drafter(pool)

    def run(self) -> None:
        self.env.process(self._tick())
        work = self._config.work
        if work.concurrency:
            for _ in range(work.concurrency):
                self._arrive()
        else:
            self.env.process(self._arrivals())
        self.env.run(until=self._config.warm_up_s + self._config.seconds)

    # Work.

    def _arrivals(self) -> Generator[simpy.Event, Any, None]:
        while True:
            yield self.env.timeout(self._workload.gap_s(self.env.now))
            self._arrive()

    def _arrive(self) -> None:
        self._dispatch(self._workload.request(self.env.now))

    def _ended(self, request: Request) -> None:
        self.finished.requests.append(request)
        if self._config.work.concurrency:
            self._arrive()

    def _dispatch(self, request: Request) -> None:
        members = [_member("target", target.name, "", target.load) for target in self._targets.values()]
        chosen = choose_target(str(request.number), members)
        if chosen is None:
            self.env.process(self._again(request))
            return
        self._targets[chosen.replica].submit(request, self._route(request, chosen.replica))

    def _again(self, request: Request) -> Generator[simpy.Event, Any, None]:
        yield self.env.timeout(_TICK_S)
        self._dispatch(request)

    # Drafters for it.

    def _route(self, request: Request, target: str) -> DrafterReplica | None:
        if self._policy.name == "plain":
            return None
        kinds = self._kinds(request) if self._policy.name == "adaptive" else (self._policy.kind,)
        members = [_member("drafter", d.name, d.kind, d.sessions) for d in self._drafters.values()]
        ranked = rank_drafters(
            "auto", target, members, preference=kinds, per_target=self._config.router.drafters_per_target
        )
        return self._taken(self._drafters[ranked[0].replica]) if ranked else None

    def _kinds(self, request: Request) -> tuple[str, ...]:
        alive = {drafter.kind for drafter in self._drafters.values()}
        return self._chooser.order(Task(request.task, 1.0), alive, self._budget)

    def _find(self, kind: str) -> DrafterReplica | None:
        replicas = [drafter for drafter in self._drafters.values() if drafter.kind == kind]
        return self._taken(min(replicas, key=lambda drafter: drafter.sessions)) if replicas else None

    @staticmethod
    def _taken(drafter: DrafterReplica) -> DrafterReplica:
        drafter.sessions += 1
        return drafter

    # The actor.

    def _tick(self) -> Generator[simpy.Event, Any, None]:
        version = 0
        while True:
            yield self.env.timeout(_TICK_S)
            if self.env.now >= self._config.warm_up_s:
                self.used.target_s += _TICK_S * len(self._targets)
                self.used.drafter_s += _TICK_S * len(self._drafters)
            if self._policy.name != "adaptive":
                continue
            for target in self._targets.values():
                self.planner.observe(
                    _report("target", target.name, uses=target.dcut.lessons.tally.uses(), costs=target.dcut.round_costs)
                )
            for drafter in self._drafters.values():
                self.planner.observe(_report("drafter", drafter.name, drafter.kind, busy=drafter.take_busy()))
            self.planner.observe(_report("router", "router", unserved=self._chooser.take_unserved()))
            self.plan = self.planner.plan(self.env.now)
            version += 1
            self._budget = Budget(version, 5.0, (), kinds=self.plan.kinds, guidance=self.plan.guidance)
            self._guide = guide_of(self._budget)
            self._scale()

    def _scale(self) -> None:
        """Follows the wanted number of replicas."""
        wanted = {kind.kind: kind.wanted for kind in self.plan.kinds}
        for pool in self._config.drafters:
            if not pool.max_replicas:
                continue
            goal = min(max(wanted.get(pool.kind, 0), pool.min_replicas), pool.max_replicas)
            replicas = [drafter for drafter in self._drafters.values() if drafter.kind == pool.kind]
            while len(replicas) + self._coming[pool.kind] < goal:
                self._coming[pool.kind] += 1
                self.env.process(self._start_later(pool))
            for drafter in sorted(replicas, key=lambda d: d.sessions)[: max(len(replicas) - goal, 0)]:
                self._remove_drafter(drafter)

    # Replicas come and go.

    def _start_target(self) -> None:
        policy = self._policy
        self._num_targets += 1
        mode = {"quarters": "quarters", "adaptive": self._config.local_dcut.mode}.get(policy.name, "off")
        settings = LocalDcutConfig.model_validate({**self._config.local_dcut.model_dump(), "mode": mode})
        limits = {"plain": 0, "adaptive": self._config.default_draft_tokens}
        target = TargetReplica(
            self.env,
            f"target-{self._num_targets}",
            self._config.target,
            self._table,
            LocalDcut(settings, self._table),
            self._workload,
            limits.get(policy.name, policy.length),
            self._config.rpc_ms / 1e3,
            self._find,
            self._newest_guide if policy.name == "adaptive" else None,
            self._ended,
        )
        self._targets[target.name] = target
        if self._config.failures.target_every_s:
            self.env.process(self._doom(self._config.failures.target_every_s, lambda: self._lose_target(target)))

    def _start_drafter(self, pool: DrafterConfig) -> None:
        drafter = DrafterReplica(self.env, pool)
        self._drafters[drafter.name] = drafter
        if self._config.failures.drafter_every_s:
            self.env.process(
                self._doom(self._config.failures.drafter_every_s, lambda: self._lose_drafter(drafter, pool))
            )

    def _start_later(self, pool: DrafterConfig) -> Generator[simpy.Event, Any, None]:
        yield self.env.timeout(self._config.failures.restart_s)
        self._coming[pool.kind] -= 1
        self._start_drafter(pool)

    def _doom(self, every_s: float, lose: Any) -> Generator[simpy.Event, Any, None]:
        yield self.env.timeout(self._fates.expovariate(1 / every_s))
        yield from lose()

    def _lose_target(self, target: TargetReplica) -> Generator[simpy.Event, Any, None]:
        self.num_deaths += 1
        del self._targets[target.name]
        self.planner.remove(target.name)
        left = target.die()
        self.num_resumed += len(left)
        for request in left:
            self._dispatch(request)
        yield self.env.timeout(self._config.failures.restart_s)
        self._start_target()

    def _lose_drafter(self, drafter: DrafterReplica, pool: DrafterConfig) -> Generator[simpy.Event, Any, None]:
        if drafter.name not in self._drafters:
            return  # it had been scaled away
        self.num_deaths += 1
        self._remove_drafter(drafter)
        yield self.env.timeout(self._config.failures.restart_s)
        self._start_drafter(pool)

    def _remove_drafter(self, drafter: DrafterReplica) -> None:
        del self._drafters[drafter.name]
        self.planner.remove(drafter.name)
        drafter.die()

    def _newest_guide(self) -> Guide:
        return self._guide


def _member(role: Any, replica: str, kind: str, sessions: int) -> Member:
    return Member(role, replica, "simulated", kind, "", "", 0, 0, sessions, 0, 0, "")


def _report(role: Any, replica: str, kind: str = "", **told: Any) -> Report:
    return Report(role, replica, "simulated", kind, "", "", 60.0, **told)
