from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.dcut.cluster.messages import Guidance, KindBudget, RoundCost, Use
from services.dcut.messages import (
    MAX_REPORT_BYTES,
    MESSAGE_VERSION,
    Budget,
    Member,
    Report,
    decode_budget,
    decode_report,
    encode,
)

COUNTS = st.integers(0, 2**31)
AMOUNTS = st.floats(0, 1e12)
NAMES = st.text(max_size=10)
RATES = st.lists(st.floats(0, 1), max_size=16).map(tuple)
USES = st.builds(
    Use,
    kind=NAMES,
    task_class=NAMES,
    samples=AMOUNTS,
    rounds=AMOUNTS,
    tokens=AMOUNTS,
    squares=AMOUNTS,
    verified=RATES,
    accepted=RATES,
)
COSTS = st.builds(RoundCost, kind=NAMES, plain_steps=AMOUNTS)
REPORTS = st.builds(
    Report,
    role=st.sampled_from(["gateway", "router", "target", "drafter"]),
    replica=st.text(min_size=1, max_size=10),
    lease_s=st.floats(0.01, 60),
    batch=COUNTS,
    queue=COUNTS,
    busy=st.floats(0, 2),
    uses=st.lists(USES, max_size=3).map(tuple),
    costs=st.lists(COSTS, max_size=3).map(tuple),
    unserved=st.lists(NAMES, max_size=3).map(tuple),
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
    kinds=st.lists(
        st.builds(
            KindBudget,
            kind=NAMES,
            replicas=COUNTS,
            wanted=COUNTS,
            busy=AMOUNTS,
            price_s=AMOUNTS,
            plain_steps=AMOUNTS,
        ),
        max_size=2,
    ).map(tuple),
    guidance=st.lists(
        st.builds(
            Guidance,
            kind=NAMES,
            task_class=NAMES,
            samples=AMOUNTS,
            rounds=AMOUNTS,
            tokens=AMOUNTS,
            squares=AMOUNTS,
            acceptance=RATES,
            max_draft=COUNTS,
        ),
        max_size=2,
    ).map(tuple),
    pace=st.floats(1, 4),
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

GOOD_USE: dict[str, Any] = {
    "kind": "mtp",
    "task_class": "chat",
    "samples": 1,
    "rounds": 9.0,
    "tokens": 17,
    "squares": 33.0,
    "verified": [9, 4.0],
    "accepted": [4, 1],
}


def pack(body: Any, version: Any = MESSAGE_VERSION) -> bytes:
    return msgspec.msgpack.encode({"v": version, "body": body})


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
    never_anything_but_value_error(msgspec.msgpack.encode(message))
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
        ({**GOOD_REPORT, "role": "king"}, "Invalid enum value 'king'.*role"),
        ({**GOOD_REPORT, "replica": ""}, "replica: it must not be empty"),
        ({**GOOD_REPORT, "lease_s": 0}, "lease_s: 0.0 is out of range"),
        ({**GOOD_REPORT, "lease_s": float("nan")}, "lease_s: nan is out of range"),
        ({**GOOD_REPORT, "lease_s": 61.0}, "lease_s: 61.0 is out of range"),
        ({**GOOD_REPORT, "batch": True}, "Expected `int`, got `bool`.*batch"),
        ({**GOOD_REPORT, "batch": 1.0}, "Expected `int`, got `float`.*batch"),
        ({**GOOD_REPORT, "batch": -1}, "batch: -1 is out of range"),
        ({**GOOD_REPORT, "busy": -0.1}, "busy: -0.1 is out of range"),
        ({**GOOD_REPORT, "uses": [{**GOOD_USE, "rounds": -1.0}]}, "rounds: -1.0 is out of range"),
        ({**GOOD_REPORT, "uses": [{**GOOD_USE, "kind": "k" * 33}]}, "kind: 33 characters are too many"),
        ({**GOOD_REPORT, "uses": [{**GOOD_USE, "verified": [1.0] * 17}]}, "verified: it must have at most 16 values"),
        ({**GOOD_REPORT, "uses": [GOOD_USE] * 65}, "uses: 65 are too many"),
        ({**GOOD_REPORT, "unserved": ["mtp"] * 65}, "unserved: 65 are too many"),
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
        decode_report(b"\x00" * (MAX_REPORT_BYTES + 1))


def test_what_a_newer_version_adds_is_passed_over() -> None:
    assert decode_report(pack({**GOOD_REPORT, "extra": 1})) == decode_report(pack(GOOD_REPORT))
