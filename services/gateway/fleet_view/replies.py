"""The fleet view as the public API tells it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from protos import generation_pb2 as pb
from services.dcut.messages import Member
from services.requests.speculation import DrafterChoice

# What a request may name beside these says how to choose.
KINDS = tuple(sorted(set(get_args(DrafterChoice)) - {"auto", "none"}))


def drafters_of(members: Iterable[Member]) -> list[pb.DrafterKind]:
    """One for each kind that a request may name, and for others that are there."""
    kinds = {kind: pb.DrafterKind(kind=kind) for kind in KINDS}
    for member in members:
        if member.role == "drafter":
            kind = kinds.setdefault(member.kind, pb.DrafterKind(kind=member.kind))
            kind.replicas += 1
            kind.batch += member.batch
            kind.queue += member.queue
            kind.sessions += member.sessions
            kind.capacity += member.capacity
    return [kinds[name] for name in sorted(kinds)]


def replicas_of(members: Iterable[Member]) -> list[pb.Replica]:
    """By role, kind and name."""
    return [
        pb.Replica(
            role=member.role,
            name=member.replica,
            kind=member.kind,
            address=member.address,
            version=member.version,
            node=member.node,
            batch=member.batch,
            queue=member.queue,
            sessions=member.sessions,
            capacity=member.capacity,
            pid=member.pid,
            exactness=member.exactness,
        )
        for member in sorted(members, key=lambda m: (m.role, m.kind, m.replica))
    ]
