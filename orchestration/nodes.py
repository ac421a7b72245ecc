"""How many nodes every pool needs, from what its replicas ask for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestration.topology import Pool, PoolName, Topology

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Demand:
    """What every replica of one deployment asks of a node, and how many replicas there are."""

    setting: str  # where the user wrote it
    home_of: PoolName
    replicas: int
    max_replicas: int
    num_cpus: float = 0.0
    num_gpus: float = 0.0
    resources: Mapping[str, float] = field(default_factory=dict)
    is_one_a_node: bool = False
    is_drafter: bool = False


@dataclass(frozen=True, slots=True)
class NodeCount:
    """Nodes of a pool: those that are always there, and the most."""

    min: int
    max: int


def node_counts(topology: Topology, demands: Sequence[Demand]) -> dict[PoolName, NodeCount]:
    """Nodes of every pool; there is one head.

    Raises ValueError when a replica does not fit on a node of its pool, or the head cannot hold what runs on it.
    """
    by_home: dict[PoolName, list[Demand]] = defaultdict(list)
    for demand in demands:
        home = topology.home(demand.home_of)
        if home is not None and demand.max_replicas:
            _check_fits(demand, home, topology.pools[home])
            by_home[home].append(demand)
    counts = {}
    for name, pool in topology.pools.items():
        least = _num_nodes(pool, [(demand, demand.replicas) for demand in by_home[name]])
        most = _num_nodes(pool, [(demand, demand.max_replicas) for demand in by_home[name]])
        if name == "head" and most > 1:
            raise ValueError(
                f"topology.pools.head: {most} such nodes would be needed for what has no pool of its own, but there "
                "is one head; enlarge it, or name further pools"
            )
        counts[name] = NodeCount(1, 1) if name == "head" else NodeCount(least, most)
    return counts


def check_gpus_are_apart(topology: Topology, demands: Iterable[Demand]) -> None:
    """Raises ValueError when a target and a drafter could be given parts of one GPU, unless that is wanted."""
    if topology.share_gpus:
        return
    parts = [demand for demand in demands if demand.num_gpus % 1.0 and demand.max_replicas]
    targets = [demand for demand in parts if demand.home_of == "target"]
    for drafter in (demand for demand in parts if demand.is_drafter):
        for target in targets:
            if topology.home(target.home_of) == topology.home(drafter.home_of):
                raise ValueError(
                    f"{drafter.setting}.num_gpus: {drafter.num_gpus:g} beside {target.setting}.num_gpus: "
                    f"{target.num_gpus:g} could be parts of one GPU; give either a whole one or a pool of its own, "
                    "or set topology.share_gpus to true"
                )


def _check_fits(demand: Demand, home: PoolName, pool: Pool) -> None:
    offered: dict[str, float] = {"num_cpus": pool.cpus, "num_gpus": pool.gpus, **pool.resources}
    asked = {"num_cpus": demand.num_cpus, "num_gpus": demand.num_gpus, **demand.resources}
    for what, amount in asked.items():
        if amount > offered.get(what, 0.0):
            raise ValueError(
                f"{demand.setting}.{what}: {amount:g} is more than a node of the pool `{home}` has, "
                f"{offered.get(what, 0.0):g}"
            )


def _num_nodes(pool: Pool, asked: Sequence[tuple[Demand, int]]) -> int:
    """Nodes that first fit takes, the greediest replicas first."""
    nodes: list[_Node] = []
    for demand, count in sorted(asked, key=lambda pair: (-pair[0].num_gpus, -pair[0].num_cpus)):
        at = 0  # replicas of one deployment are alike: what one did not fit on is full for all
        for _ in range(count):
            while at < len(nodes) and not nodes[at].take(demand):
                at += 1
            if at == len(nodes):
                nodes.append(_Node(pool))
                taken = nodes[at].take(demand)
                assert taken, "an empty node holds every replica that was checked"
            if demand.is_one_a_node:
                at += 1
    return len(nodes)


class _Node:
    """What is left of one node."""

    def __init__(self, pool: Pool) -> None:
        self._left: dict[str, float] = {"num_cpus": pool.cpus, **pool.resources}
        self._gpus = [1.0] * pool.gpus

    def take(self, demand: Demand) -> bool:
        """Sets a replica's share aside, if there is room. A part of a GPU lies on one GPU."""
        asked = {"num_cpus": demand.num_cpus, **demand.resources}
        if any(amount > self._left[what] + _ROUNDING for what, amount in asked.items()):
            return False
        share = min(demand.num_gpus, 1.0)
        wanted = round(demand.num_gpus) if demand.num_gpus >= 1.0 else int(demand.num_gpus > 0)
        fitting = [i for i, left in enumerate(self._gpus) if left + _ROUNDING >= share][:wanted]
        if len(fitting) < wanted:
            return False
        for i in fitting:
            self._gpus[i] -= share
        for what, amount in asked.items():
            self._left[what] -= amount
        return True
