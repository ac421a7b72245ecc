"""Every entry is checked against its session, and a bad one touches no other."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from protos import drafting_pb2 as pb
from services.drafters.drafter import Features, Opening, Question
from services.drafters.intake import Caller, Intake
from tests.unit.drafters.support import (
    CALLER,
    HIDDEN,
    HUNGRY,
    LAYERS,
    append,
    ask,
    catch_up,
    frame,
    intake,
    opening,
    with_features,
)

MALFORMED = pb.FAULT_CODE_MALFORMED
MISMATCH = pb.FAULT_CODE_BASE_MISMATCH
UNKNOWN = pb.FAULT_CODE_UNKNOWN_SESSION


def codes(desk: Intake, *entries: pb.Entry, caller: Caller = CALLER, now: float = 0.0) -> list[int]:
    return [entry.fault.code for entry in desk.admit(caller, frame(*entries), now)]


def test_a_frame_becomes_one_batch() -> None:
    desk = intake()
    assert codes(desk, opening(), catch_up(0, [1, 2, 3]), append(3, [4]), ask(4), now=1.0) == []
    batch = desk.pending.take(now=1.0, expected_s=0)
    assert batch.opens == [Opening(0, 0.5, 3, 4, 0.5)]
    assert [(item.base, item.tokens) for item in batch.catch_ups] == [(0, (1, 2, 3, 4))]
    assert batch.appends == []
    assert [item.question for item in batch.asks] == [Question(0, 4, 4)]
    assert desk.pending.is_empty


def test_a_later_append_makes_an_undrafted_ask_worthless() -> None:
    desk = intake()
    codes(desk, opening(), append(0, [1]), ask(1), append(1, [2]), ask(2))
    batch = desk.pending.take(now=0.0, expected_s=0)
    assert [item.question.base for item in batch.asks] == [2]
    assert [item.question.base for item in batch.shed] == [1]


def test_an_ask_past_its_deadline_is_shed() -> None:
    desk = intake()
    codes(desk, opening(), append(0, [1]), ask(1, deadline_us=2000), now=1.0)
    batch = desk.pending.take(now=1.0, expected_s=0.003)
    assert (len(batch.asks), len(batch.shed)) == (0, 1)


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        (append(2, [9]), MISMATCH),
        (append(4, [9]), MISMATCH),
        (append(3, [9], epoch=2), MISMATCH),
        (append(3, [9], epoch=0), MISMATCH),
        (append(3, []), MALFORMED),
        (append(3, [100]), MALFORMED),
        (append(3, [9] * 998), MALFORMED),
        (append(3, [9], sequence=2), UNKNOWN),
        (catch_up(3, [9], epoch=0), MISMATCH),
        (catch_up(3, [9], sequence=2), UNKNOWN),
        (ask(2), MISMATCH),
        (ask(3, epoch=2), MISMATCH),
        (ask(3, max_draft=0), MALFORMED),
        (ask(3, sequence=2), UNKNOWN),
        (pb.Entry(sequence=1, epoch=1, base=3), MALFORMED),
        (pb.Entry(sequence=3, base=1, open=pb.Open(top_p=1)), MALFORMED),
        (pb.Entry(sequence=3, open=pb.Open(top_p=0)), MALFORMED),
        (pb.Entry(sequence=3, open=pb.Open(top_p=1, temperature=-1)), MALFORMED),
        (pb.Entry(sequence=3, open=pb.Open(top_p=1, temperature=float("nan"))), MALFORMED),
        (opening(sequence=3, lease=b"made up"), pb.FAULT_CODE_BAD_LEASE),
        (with_features(append(3, [9]), 2, 1), MALFORMED),  # this drafter takes none
    ],
)
def test_a_bad_entry_is_told_and_leaves_the_session_as_it_was(entry: pb.Entry, code: int) -> None:
    desk = intake()
    assert codes(desk, opening(), append(0, [1, 2, 3])) == []
    faults = desk.admit(CALLER, frame(entry), 0.0)
    assert [(fault.sequence, fault.epoch, fault.base, fault.fault.code) for fault in faults] == [
        (entry.sequence, entry.epoch, entry.base, code)
    ]
    assert faults[0].fault.detail
    assert codes(desk, append(3, [4]), ask(4)) == []


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "float64"},
        {"dtype": ""},
        {"shape": (1, 2)},
        {"shape": (0, 2, HIDDEN)},
        {"shape": (1, 3, HIDDEN)},
        {"shape": (1, 2, HIDDEN + 1)},
        {"shape": (2**32 - 1, 2, HIDDEN)},
        {"data": b""},
        {"data": bytes(65)},
    ],
)
def test_a_tensor_that_does_not_add_up_is_refused(change: dict[str, object]) -> None:
    desk = intake(HUNGRY)
    entry = with_features(catch_up(0, [1, 2]), 0, 1)
    sound = {"dtype": "float32", "shape": (1, len(LAYERS), HIDDEN), "data": bytes(64)}
    entry.catch_up.features.CopyFrom(pb.Tensor(**{**sound, **change}))  # type: ignore[arg-type]
    assert codes(desk, opening(), entry) == [MALFORMED]


def test_hidden_states_must_join_up_and_lag_one_behind_the_tokens() -> None:
    desk = intake(HUNGRY)
    seeded = with_features(catch_up(5, [1, 2, 3]), 5, 2)  # tokens 5..7, hidden states 5..6
    assert codes(desk, opening(), seeded, ask(8)) == []
    assert codes(desk, with_features(append(8, [4]), 8, 1)) == [MALFORMED]  # its newest token has none yet
    assert codes(desk, with_features(append(8, [4]), 6, 2)) == [MISMATCH]  # overlaps
    assert codes(desk, with_features(append(8, [4]), 7, 1), ask(9)) == []
    assert codes(desk, append(9, [5]), ask(10)) == [MISMATCH]  # hidden states are missing
    batch = desk.pending.take(0.0, 0.0)
    assert [(chunk.first, chunk.end) for chunk in batch.catch_ups[0].features] == [(5, 7), (7, 8)]
    assert all(isinstance(chunk, Features) for chunk in batch.catch_ups[0].features)


def test_past_the_last_position_the_draft_is_empty_rather_than_an_error() -> None:
    desk = intake()
    assert codes(desk, opening(), append(0, [1] * 998), ask(998, max_draft=8)) == []
    assert desk.pending.take(0.0, 0.0).asks[0].question.max_draft == 2
    assert codes(desk, append(998, [1, 1]), ask(1000)) == []
    assert desk.pending.take(0.0, 0.0).asks[0].question.max_draft == 0


def test_streams_do_not_see_each_others_sequences() -> None:
    desk = intake()
    other = Caller(2, "target-2", 100, HIDDEN)
    codes(desk, opening(), append(0, [1]))
    assert codes(desk, ask(1), caller=other) == [UNKNOWN]
    codes(desk, opening(), caller=other)
    desk.drop_stream(2)
    assert codes(desk, ask(1)) == []


def test_a_new_session_replaces_the_old_one() -> None:
    desk = intake()
    codes(desk, opening(epoch=1), append(0, [1, 2]))
    codes(desk, opening(epoch=2))
    assert codes(desk, append(2, [3], epoch=1)) == [MISMATCH]
    assert codes(desk, append(0, [7], epoch=2), ask(1, epoch=2)) == []
    batch = desk.pending.take(0.0, 0.0)
    assert [item.session for item in batch.opens] == [1]
    assert batch.closes == [0]


def test_a_stopping_drafter_takes_nobody_new() -> None:
    desk = intake()
    codes(desk, opening(), append(0, [1]))
    desk.is_draining = True
    assert codes(desk, opening(sequence=2)) == [pb.FAULT_CODE_FULL]
    assert codes(desk, ask(1)) == []


small = st.integers(0, 6)
tensors = st.builds(
    pb.Tensor,
    dtype=st.sampled_from(["bfloat16", "float32", "x"]),
    shape=st.lists(st.integers(0, 9), max_size=4),
    data=st.binary(max_size=70),
)
entries = st.one_of(
    st.builds(lambda s, e: opening(s, e), small, small),
    st.builds(lambda b, t, s, e: append(b, t, s, e), small, st.lists(st.integers(0, 120), max_size=4), small, small),
    st.builds(lambda b, t, s, e: catch_up(b, t, s, e), small, st.lists(st.integers(0, 120), max_size=4), small, small),
    st.builds(
        lambda b, s, e, f, t: pb.Entry(
            sequence=s, epoch=e, base=b, append=pb.Append(tokens=[1], features=t, first_feature=f)
        ),
        small,
        small,
        small,
        st.integers(0, 2**32 - 1),
        tensors,
    ),
    st.builds(lambda b, k, s, e: ask(b, k, s, e), small, small, small, small),
    st.builds(lambda s: pb.Entry(sequence=s, close=pb.Close()), small),
    st.binary(max_size=40).map(lambda data: _parsed(data)),
)


def _parsed(data: bytes) -> pb.Entry:
    try:
        return pb.Entry.FromString(data)
    except DecodeError:
        return pb.Entry()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(entries, max_size=6), max_size=12), st.sampled_from([HUNGRY, None]))
def test_no_sequence_of_messages_disturbs_a_sound_one(frames: list[list[pb.Entry]], traits: object) -> None:
    desk = intake(HUNGRY) if traits else intake()
    sound, length = 77, 1
    assert codes(desk, opening(sound), append(0, [1], sound)) == []
    for hostile in frames:
        desk.admit(CALLER, frame(*[entry for entry in hostile if entry.sequence != sound]), 0.0)
        grown = append(length, [5], sound)
        if traits:
            grown = with_features(grown, length - 1, 1)
        assert codes(desk, grown, ask(length + 1, sequence=sound)) == []
        length += 1
        batch = desk.pending.take(0.0, 0.0)
        # What is left for the drafter keeps its promises, whatever came in.
        for extension in (*batch.appends, *batch.catch_ups):
            assert extension.tokens
            assert max(extension.tokens) < CALLER.vocabulary
            for chunk in extension.features:
                assert len(chunk.data) == chunk.shape[0] * chunk.shape[1] * chunk.shape[2] * (
                    4 if chunk.dtype == "float32" else 2
                )
        sessions = [extension.session for extension in (*batch.appends, *batch.catch_ups)]
        assert len(sessions) == len(set(sessions))
