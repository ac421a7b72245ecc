"""Counts on their way to the D-cut actor, and the fleet's totals on their way to gateways, both as msgpack."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from services.metrics.catalogue import metric_of
from services.metrics.metric import Series, Value

MESSAGE_VERSION = 1
MAX_COUNTED_BYTES = 1 << 19
MAX_SNAPSHOT_BYTES = 4 << 20
_MAX_NAME = 64


@dataclass(frozen=True, slots=True)
class Counted:
    """What one life of a replica has counted.

    Each total comes twice: as the actor last confirmed it, and as it is now. So a lost answer is no
    loss, a repeated message counts once, and a new actor adds only what nobody has heard yet.
    """

    incarnation: str
    totals: Mapping[Series, tuple[Value, Value]]  # those that changed
    gauges: Mapping[Series, float]  # all


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The fleet's totals as an actor had them."""

    actor: str  # one life of the actor
    version: int  # rises with every report
    is_settled: bool  # False: a new actor that cannot have heard everyone yet
    totals: Mapping[Series, Value]
    gauges: Mapping[Series, float]


def encode_counted(counted: Counted) -> bytes:
    totals = [[list(series), list(before), list(now)] for series, (before, now) in counted.totals.items()]
    return _packed([counted.incarnation, totals, _gauges(counted.gauges)])


def decode_counted(data: bytes) -> Counted:
    """Raises ValueError for anything but a well-formed message of this version."""
    incarnation, totals, gauges = _unpacked(data, MAX_COUNTED_BYTES, 3)
    changed = {}
    for entry in _list(totals, "totals"):
        names, before, now = _fields(entry, 3)
        series, value = _series(names), _value(now)
        if not metric_of(series, value).is_cumulative:
            raise ValueError(f"totals: {series[0]} is a gauge")
        metric_of(series, _value(before))
        changed[series] = _value(before), value
    return Counted(_name(incarnation, "incarnation"), changed, _read_gauges(gauges))


def encode_snapshot(snapshot: Snapshot) -> bytes:
    totals = [[list(series), list(value)] for series, value in snapshot.totals.items()]
    return _packed([snapshot.actor, snapshot.version, snapshot.is_settled, totals, _gauges(snapshot.gauges)])


def decode_snapshot(data: bytes) -> Snapshot:
    """Raises ValueError for anything but a well-formed message of this version."""
    actor, version, is_settled, totals, gauges = _unpacked(data, MAX_SNAPSHOT_BYTES, 5)
    if not isinstance(version, int) or isinstance(version, bool) or version < 0 or not isinstance(is_settled, bool):
        raise ValueError("snapshot: its version must be a number and settled a truth value")
    known = {}
    for entry in _list(totals, "totals"):
        names, numbers = _fields(entry, 2)
        series, value = _series(names), _value(numbers)
        if not metric_of(series, value).is_cumulative:
            raise ValueError(f"totals: {series[0]} is a gauge")
        known[series] = value
    return Snapshot(_name(actor, "actor"), version, is_settled, known, _read_gauges(gauges))


def _packed(body: list[Any]) -> bytes:
    return msgspec.msgpack.encode([MESSAGE_VERSION, *body])


def _unpacked(data: bytes, limit: int, count: int) -> list[Any]:
    if len(data) > limit:
        raise ValueError(f"message: {len(data)} bytes is too large; at most {limit} are allowed")
    try:
        message = msgspec.msgpack.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ValueError(f"message: not msgpack ({error})") from error
    if not isinstance(message, list) or not message or message[0] != MESSAGE_VERSION:
        raise ValueError(f"message: its version must be {MESSAGE_VERSION}")
    return _fields(message[1:], count)


def _gauges(gauges: Mapping[Series, float]) -> list[Any]:
    return [[list(series), value] for series, value in gauges.items()]


def _read_gauges(entries: Any) -> dict[Series, float]:
    gauges = {}
    for entry in _list(entries, "gauges"):
        names, number = _fields(entry, 2)
        series, value = _series(names), _value([number])
        if metric_of(series, value).is_cumulative:
            raise ValueError(f"gauges: {series[0]} is a total")
        gauges[series] = value[0]
    return gauges


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{name}: it must be a list")
    return value


def _fields(value: Any, count: int) -> list[Any]:
    if not isinstance(value, list) or len(value) != count:
        raise ValueError(f"message: {count} fields are expected here")
    return value


def _series(names: Any) -> Series:
    return tuple(_name(name, "series") for name in _list(names, "series"))


def _name(value: Any, field: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_NAME:
        raise ValueError(f"{field}: it must be a text of at least 1 and at most {_MAX_NAME} characters")
    return value


def _value(numbers: Any) -> Value:
    for number in _list(numbers, "value"):
        is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
        if not is_number or not 0 <= number < math.inf:
            raise ValueError(f"value: {number!r} must be a number of at least 0")
    return tuple(numbers)
