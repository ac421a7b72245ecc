"""Control telemetry: load reports up, budgets down, both as msgpack.

A report is also a replica's registration and its lease: a replica that stops
reporting leaves the fleet.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, TypeVar, cast, get_args

import msgpack

Role = Literal["gateway", "router", "target", "drafter"]
MESSAGE_VERSION = 1
MAX_MESSAGE_BYTES = 1 << 20
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


@dataclass(frozen=True, slots=True)
class Budget:
    """What the actor tells every replica."""

    version: int  # rises with every change
    ttl_s: float  # older than this: last known good, then local decisions
    members: tuple[Member, ...]
    settled: bool = True  # False: a new actor that cannot have heard everyone yet

    def __post_init__(self) -> None:
        if not 0 <= self.ttl_s <= MAX_TTL_S:
            raise ValueError(f"ttl_s: {self.ttl_s} is out of range; it must be at least 0 and at most {MAX_TTL_S}")


_T = TypeVar("_T", Report, Budget)

# Annotations are text here; anything else is a string.
_TYPES: dict[str, Any] = {"int": int, "float": (int, float), "bool": bool, "tuple[Member, ...]": tuple}


def encode(message: Report | Budget) -> bytes:
    body = asdict(message)
    return msgpack.packb({"v": MESSAGE_VERSION, "body": body}, use_bin_type=True)  # type: ignore[no-any-return]


def decode_report(data: bytes) -> Report:
    """Raises ValueError for anything but a well-formed report of this version."""
    return cast(Report, _build(Report, _body(data)))


def decode_budget(data: bytes) -> Budget:
    """Raises ValueError for anything but a well-formed budget of this version."""
    body = _body(data)
    members = body.get("members")
    if not isinstance(members, list):
        raise ValueError("members: it must be a list")
    return cast(Budget, _build(Budget, {**body, "members": tuple(_build(Member, m) for m in members)}))


def _body(data: bytes) -> dict[str, Any]:
    if len(data) > MAX_MESSAGE_BYTES:
        raise ValueError(f"message: {len(data)} bytes is too large; at most {MAX_MESSAGE_BYTES} are allowed")
    try:
        message = msgpack.unpackb(data, raw=False)
    except (ValueError, msgpack.UnpackException) as error:
        raise ValueError(f"message: not msgpack ({error})") from error
    if not isinstance(message, dict) or message.get("v") != MESSAGE_VERSION:
        raise ValueError(f"message: its version must be {MESSAGE_VERSION}")
    body = message.get("body")
    if not isinstance(body, dict):
        raise ValueError("message: it has no body")
    return body


def _build(kind: Any, values: Any) -> Any:
    known = {f.name: f for f in fields(kind)}
    if not isinstance(values, dict) or not values.keys() <= known.keys():
        raise ValueError(f"{kind.__name__}: its fields must be among {', '.join(known)}")
    for name, value in values.items():
        expected = _TYPES.get(str(known[name].type), str)
        if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
            raise ValueError(f"{kind.__name__}.{name}: {value!r} has the wrong type")
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueError(f"{kind.__name__}: {error}") from error
