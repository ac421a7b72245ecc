"""Reserves places at drafter replicas over gRPC."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import grpc.aio

from protos import drafting_pb2 as pb
from protos.drafting_pb2_grpc import DraftingStub
from services.dcut.messages import Member
from services.rpc.channels import ChannelPool, Unreachable

logger = logging.getLogger(__name__)

PROTOCOL = 1


@dataclass(frozen=True, slots=True)
class Reservation:
    """A place held at `member` until the lease lapses."""

    member: Member
    lease: pb.Lease
    attempts: int


class LeaseClient:
    """Belongs to one event loop; the channels are the caller's."""

    def __init__(self, channels: ChannelPool, *, timeout_s: float, attempts: int) -> None:
        self._channels = channels
        self._timeout_s = timeout_s
        self._attempts = attempts
        self.failures = 0  # reservations that did not succeed

    async def reserve(self, request_id: str, sequences: int, candidates: Sequence[Member]) -> Reservation | None:
        """Tries the candidates in order; None when none of the first few has a place in time."""
        for attempt, member in enumerate(candidates[: self._attempts], start=1):
            lease = await self._reserve_at(member, request_id, sequences)
            if lease is not None:
                return Reservation(member, lease, attempt)
        return None

    async def _reserve_at(self, member: Member, request_id: str, sequences: int) -> pb.Lease | None:
        request = pb.ReserveRequest(protocol=PROTOCOL, request_id=request_id, sequences=sequences)
        try:
            async with self._channels.use(member.address) as channel:
                reply = await DraftingStub(channel).Reserve(
                    request, timeout=self._timeout_s, metadata=self._channels.metadata
                )
        except Unreachable as error:
            self._failed(member, str(error))
            return None
        except grpc.aio.AioRpcError as error:
            self._failed(member, f"{error.code().name}: {error.details()}")
            return None
        lease: pb.Lease = reply.lease
        if lease.kind != member.kind or not lease.address or not lease.token:
            self._failed(member, "its lease is malformed")
            return None
        return lease

    def _failed(self, member: Member, reason: str) -> None:
        self.failures += 1
        logger.warning("no place at drafter %s (%s): %s", member.replica, member.kind, reason)
