"""The fleet in few words: for each kind of replica how many and how busy, then the replicas."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypedDict

from services.dcut.messages import Member

MAX_REPLICAS = 200
_ROLES = ("gateway", "router", "target", "drafter")


class ReplicaSummary(TypedDict):
    """Without addresses and process ids, which the status tells."""

    role: str
    kind: str  # drafter kind; empty for other roles
    replica: str
    batch: int  # sequences in the last step or round
    queue: int
    sessions: int
    capacity: int  # 0: unknown
    exactness: str  # targets: bitwise or ties


class GroupSummary(TypedDict):
    """All replicas of one role and kind."""

    role: str
    kind: str
    replicas: int
    batch: int
    queue: int
    sessions: int
    capacity: int


class FleetSummary(TypedDict):
    groups: list[GroupSummary]
    replicas: list[ReplicaSummary]  # at most MAX_REPLICAS, in the order of the groups
    left_out: int


def summarize(members: Sequence[Member]) -> FleetSummary:
    ordered = sorted(members, key=lambda m: (_ROLES.index(m.role), m.kind, m.replica))
    return {
        "groups": _groups(ordered),
        "replicas": [_replica(member) for member in ordered[:MAX_REPLICAS]],
        "left_out": max(0, len(ordered) - MAX_REPLICAS),
    }


def _groups(members: Iterable[Member]) -> list[GroupSummary]:
    groups: dict[tuple[str, str], GroupSummary] = {}
    for member in members:
        group = groups.get((member.role, member.kind))
        if group is None:
            group = groups[member.role, member.kind] = {
                "role": member.role,
                "kind": member.kind,
                "replicas": 0,
                "batch": 0,
                "queue": 0,
                "sessions": 0,
                "capacity": 0,
            }
        group["replicas"] += 1
        group["batch"] += member.batch
        group["queue"] += member.queue
        group["sessions"] += member.sessions
        group["capacity"] += member.capacity
    return list(groups.values())


def _replica(member: Member) -> ReplicaSummary:
    return {
        "role": member.role,
        "kind": member.kind,
        "replica": member.replica,
        "batch": member.batch,
        "queue": member.queue,
        "sessions": member.sessions,
        "capacity": member.capacity,
        "exactness": member.exactness,
    }
