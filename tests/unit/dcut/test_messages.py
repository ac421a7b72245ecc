from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgpack
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.dcut.messages import (
    MAX_MESSAGE_BYTES,
    MESSAGE_VERSION,
    Budget,
    Member,
    Report,
    decode_budget,
    decode_report,
    encode,
)

COUNTS = st.integers(0, 2**31)
NAMES = st.text(max_size=10)
REPORTS = st.builds(
    Report,
    role=st.sampled_from(["gateway", "router", "target", "drafter"]),
    replica=st.text(min_size=1, max_size=10),
    lease_s=st.floats(0.01, 60),
    batch=COUNTS,
    queue=COUNTS,
)
MEMBERS = st.builds(
    Member,
    role=st.sampled_from(["target", "drafter"]),
    replica=NAMES,
    batch=COUNTS,
    queue=COUNTS,
    sessions=COUNTS,
    capacity=COUNTS,
    pid=COUNTS,
)
BUDGETS = st.builds(
    Budget,
    version=COUNTS,
    ttl_s=st.floats(0.01, 60),
    members=st.lists(MEMBERS, max_size=4).map(tuple),
    settled=st.booleans(),
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4) | st.binary(max_size=4), inner),
    max_leaves=4,
)
GOOD_REPORT: dict[str, Any] = {
    "role": "target",
    "replica": "t1",
    "address": "a:1",
    "kind": "",
    "version": "v",
    "node": "n",
    "lease_s": 2.0,
}


def pack(body: Any, version: Any = MESSAGE_VERSION) -> bytes:
    return msgpack.packb({"v": version, "body": body})


def never_anything_but_value_error(data: bytes) -> None:
    for decode in (decode_report, decode_budget):
        with suppress(ValueError):
            message = decode(data)
            assert decode(encode(message)) == message


@given(REPORTS)
def test_a_report_survives_the_wire(report: Report) -> None:
    assert decode_report(encode(report)) == report


@given(BUDGETS)
def test_a_budget_survives_the_wire(budget: Budget) -> None:
    assert decode_budget(encode(budget)) == budget


@given(st.binary(max_size=300))
@settings(max_examples=500)
@example(b"")
@example(b"\x91" * 100_000)  # nested deeper than any parser's stack
@example(b"\xc1")
@example(b"\xdd\xff\xff\xff\xff")
@example(b"\xd6\xff\x00\x00\x00\x01")  # a time stamp
@example(b"\x81\x90\x01")  # a list as a key
def test_bytes(data: bytes) -> None:
    never_anything_but_value_error(data)


@given(ANYTHING)
def test_other_messages(message: Any) -> None:
    never_anything_but_value_error(msgpack.packb(message))
    never_anything_but_value_error(pack(message))


@given(st.dictionaries(st.sampled_from([*GOOD_REPORT, "batch", "pid", "members", "ttl_s", "settled"]), ANYTHING))
def test_fields_of_other_types(changed: dict[str, Any]) -> None:
    never_anything_but_value_error(pack({**GOOD_REPORT, **changed}))
    never_anything_but_value_error(pack({"version": 1, "ttl_s": 1.0, "members": [changed], **changed}))


@given(REPORTS | BUDGETS, st.data())
def test_damaged_messages(message: Report | Budget, data: st.DataObject) -> None:
    damaged = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    never_anything_but_value_error(bytes(damaged[: data.draw(st.integers(0, len(damaged)))]))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({**GOOD_REPORT, "role": "king"}, "role: 'king'"),
        ({**GOOD_REPORT, "replica": ""}, "replica: it must not be empty"),
        ({**GOOD_REPORT, "lease_s": 0}, "lease_s: 0 is out of range"),
        ({**GOOD_REPORT, "lease_s": float("nan")}, "lease_s: nan is out of range"),
        ({**GOOD_REPORT, "lease_s": 61.0}, "lease_s: 61.0 is out of range"),
        ({**GOOD_REPORT, "batch": True}, "batch: True has the wrong type"),
        ({**GOOD_REPORT, "batch": 1.0}, "batch: 1.0 has the wrong type"),
        ({**GOOD_REPORT, "batch": -1}, "batch: -1 is out of range"),
        ({**GOOD_REPORT, "extra": 1}, "its fields must be among"),
        ({k: v for k, v in GOOD_REPORT.items() if k != "node"}, "node"),
    ],
)
def test_a_wrong_report_is_named(body: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode_report(pack(body))


@pytest.mark.parametrize("ttl_s", [-1.0, float("nan"), float("inf")])
def test_a_budget_must_go_stale(ttl_s: float) -> None:
    with pytest.raises(ValueError, match="ttl_s"):
        decode_budget(pack({"version": 1, "ttl_s": ttl_s, "members": []}))


def test_another_version_is_refused() -> None:
    for version in (MESSAGE_VERSION + 1, "1", None):
        with pytest.raises(ValueError, match=f"its version must be {MESSAGE_VERSION}"):
            decode_report(pack(GOOD_REPORT, version))


def test_a_large_message_is_refused_unread() -> None:
    with pytest.raises(ValueError, match="too large"):
        decode_report(b"\x00" * (MAX_MESSAGE_BYTES + 1))
