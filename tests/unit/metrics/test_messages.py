from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.metrics.messages import (
    MAX_COUNTED_BYTES,
    MESSAGE_VERSION,
    Counted,
    Snapshot,
    decode_counted,
    decode_snapshot,
    encode_counted,
    encode_snapshot,
)

DRAFTS = ("draftfleet_drafts", "mtp", "chat")
RUNNING = ("draftfleet_sequences_running",)
COUNTS = st.integers(0, 2**53) | st.floats(0, 1e15)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)


@given(COUNTS, COUNTS, COUNTS)
def test_counts_survive_the_wire(before: float, now: float, gauge: float) -> None:
    counted = Counted("life", {DRAFTS: ((before,), (now,))}, {RUNNING: gauge})
    assert decode_counted(encode_counted(counted)) == counted


@given(COUNTS, COUNTS, st.booleans())
def test_snapshots_survive_the_wire(total: float, gauge: float, is_settled: bool) -> None:
    snapshot = Snapshot("actor", 7, is_settled, {DRAFTS: (total,)}, {RUNNING: gauge})
    assert decode_snapshot(encode_snapshot(snapshot)) == snapshot


@given(ANYTHING, st.sampled_from([None, 0, 1, 2, 3, 4]))
def test_nothing_but_a_value_error_comes_of_nonsense(wrong: Any, at: int | None) -> None:
    counted: list[Any] = [MESSAGE_VERSION, "life", [[list(DRAFTS), [0], [1]]], [[list(RUNNING), 1]]]
    snapshot: list[Any] = [MESSAGE_VERSION, "actor", 1, True, [[list(DRAFTS), [1]]], [[list(RUNNING), 1]]]
    for message in (counted, snapshot):
        if at is not None and at < len(message):
            message[at] = wrong
    for decode in (decode_counted, decode_snapshot):
        for message in (counted, snapshot, wrong):
            with suppress(ValueError):
                decode(msgspec.msgpack.encode(message))


@pytest.mark.parametrize(
    ("totals", "gauges", "message"),
    [
        ([[["draftfleet_nonsense"], [0], [1]]], [], "names no metric"),
        ([[list(DRAFTS), [0], [float("nan")]]], [], "nan must be a number of at least 0"),
        ([[list(DRAFTS), [0], [-1]]], [], "-1 must be a number of at least 0"),
        ([[list(DRAFTS), [0], [True]]], [], "True must be a number"),
        ([[list(DRAFTS), [0], ["1"]]], [], "'1' must be a number"),
        ([[list(DRAFTS), [0, 0], [1]]], [], "2 numbers were given"),
        ([[list(RUNNING), [0], [1]]], [], "is a gauge"),
        ([], [[list(DRAFTS), 1]], "is a total"),
        ([[["x" * 65], [0], [1]]], [], "at most 64 characters"),
    ],
)
def test_wrong_counts_are_named(totals: Any, gauges: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode_counted(msgspec.msgpack.encode([MESSAGE_VERSION, "life", totals, gauges]))


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x91" * 100_000, b"\xdd\xff\xff\xff\xff", b"\x81\x90\x01"])
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    for decode in (decode_counted, decode_snapshot):
        with pytest.raises(ValueError, match="message: "):
            decode(data)


def test_a_large_message_and_another_version_are_refused() -> None:
    with pytest.raises(ValueError, match="too large"):
        decode_counted(b"\x00" * (MAX_COUNTED_BYTES + 1))
    with pytest.raises(ValueError, match=f"its version must be {MESSAGE_VERSION}"):
        decode_counted(msgspec.msgpack.encode([MESSAGE_VERSION + 1, "life", [], []]))
