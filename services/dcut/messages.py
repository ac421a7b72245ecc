"""Control telemetry: load reports up, budgets down, both as msgpack.

A report is also a replica's registration and its lease: a replica that stops
reporting leaves the fleet. Fields that a newer version adds are passed over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, get_args

import msgspec

from services.dcut.cluster.messages import MAX_USES, Guidance, KindBudget, RoundCost, Use

Role = Literal["gateway", "router", "target", "drafter"]
MESSAGE_VERSION = 2
MAX_REPORT_BYTES = 64 << 10
MAX_BUDGET_BYTES = 2 << 20
MAX_TTL_S = 3600


@dataclass(frozen=True, slots=True)
class Report:
    """One replica's state, sent about four times a second."""

    role: Role
    replica: str
    address: str  # host:port of its gRPC server
    kind: str  # drafter kind; empty for other roles
    version: str  # of its weights or code
    node: str
    lease_s: float  # it is gone when silent for longer
    batch: int = 0  # sequences in the last step or round
    queue: int = 0  # sequences that wait for admission
    sessions: int = 0  # open sequences
    capacity: int = 0  # most sequences it takes
    pid: int = 0
    exactness: str = ""  # targets: bitwise or ties
    numerics: str = ""  # targets: those with the same one compute the same bits
    busy: float = 0.0  # drafters: share of the time since the last report in which they computed
    uses: tuple[Use, ...] = ()  # targets
    costs: tuple[RoundCost, ...] = ()  # targets
    unserved: tuple[str, ...] = ()  # routers: kinds that were wanted since the last report, and had no replica

    def __post_init__(self) -> None:
        if self.role not in get_args(Role):
            raise ValueError(f"role: {self.role!r} is not known; it must be one of {', '.join(get_args(Role))}")
        if not self.replica:
            raise ValueError("replica: it must not be empty")
        if not 0 < self.lease_s <= 60:
            raise ValueError(f"lease_s: {self.lease_s} is out of range; it must be greater than 0 and at most 60")
        for name in ("batch", "queue", "sessions", "capacity", "pid"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: {getattr(self, name)} is out of range; it must be at least 0")
        if not 0 <= self.busy < math.inf:
            raise ValueError(f"busy: {self.busy} is out of range; it must be at least 0 and finite")
        for name in ("uses", "costs", "unserved"):
            if len(getattr(self, name)) > MAX_USES:
                raise ValueError(f"{name}: {len(getattr(self, name))} are too many; at most {MAX_USES} are allowed")


@dataclass(frozen=True, slots=True)
class Member:
    """A live replica as the fleet view tells it."""

    role: Role
    replica: str
    address: str
    kind: str
    version: str
    node: str
    batch: int
    queue: int
    sessions: int
    capacity: int
    pid: int
    exactness: str
    numerics: str = ""


@dataclass(frozen=True, slots=True)
class Budget:
    """What the actor tells every replica."""

    version: int  # rises with every change
    ttl_s: float  # older than this: last known good, then local decisions
    members: tuple[Member, ...]
    settled: bool = True  # False: a new actor that cannot have heard everyone yet
    kinds: tuple[KindBudget, ...] = ()
    guidance: tuple[Guidance, ...] = ()
    pace: float = 1.0  # so many of a replica's report periods from one report to the next

    def __post_init__(self) -> None:
        if not 0 <= self.ttl_s <= MAX_TTL_S:
            raise ValueError(f"ttl_s: {self.ttl_s} is out of range; it must be at least 0 and at most {MAX_TTL_S}")
        if not 1 <= self.pace <= 1000:
            raise ValueError(f"pace: {self.pace} is out of range; it must be at least 1 and at most 1000")


_T = TypeVar("_T", Report, Budget)


@dataclass(frozen=True, slots=True)
class _Envelope(Generic[_T]):
    v: int
    body: _T


@dataclass(frozen=True, slots=True)
class _Head:
    v: Any = None


_ENCODER = msgspec.msgpack.Encoder()
_HEAD = msgspec.msgpack.Decoder(_Head)
_REPORT = msgspec.msgpack.Decoder(_Envelope[Report])
_BUDGET = msgspec.msgpack.Decoder(_Envelope[Budget])


def encode(message: Report | Budget) -> bytes:
    return _ENCODER.encode({"v": MESSAGE_VERSION, "body": message})


def decode_report(data: bytes) -> Report:
    """Raises ValueError for anything but a well-formed report of this version."""
    return _decoded(_REPORT, data, MAX_REPORT_BYTES)


def decode_budget(data: bytes) -> Budget:
    """Raises ValueError for anything but a well-formed budget of this version."""
    return _decoded(_BUDGET, data, MAX_BUDGET_BYTES)


def _decoded(decoder: msgspec.msgpack.Decoder[_Envelope[_T]], data: bytes, limit: int) -> _T:
    if len(data) > limit:
        raise ValueError(f"message: {len(data)} bytes is too large; at most {limit} are allowed")
    try:
        # The version first: what another one calls its fields says nothing of this one's.
        if _HEAD.decode(data).v != MESSAGE_VERSION:
            raise ValueError(f"message: its version must be {MESSAGE_VERSION}")
        return decoder.decode(data).body
    except RecursionError as error:
        raise ValueError("message: it is nested too deeply") from error
