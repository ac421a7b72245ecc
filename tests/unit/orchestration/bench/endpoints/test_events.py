"""Streams of OpenAI-compatible servers, as bytes that a network cuts anywhere."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestration.bench.endpoints.events import StreamError, read_answer


def event(body: Any, end: str = "\n\n") -> bytes:
    return f"data: {json.dumps(body, ensure_ascii=False)}{end}".encode()


def delta(text: str | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    content = {} if text is None else {"content": text}
    return {"choices": [{"index": 0, "delta": content, "finish_reason": finish}], **more}


DONE = b"data: [DONE]\n\n"
USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}
STREAM = (
    event(delta("", role="assistant"))
    + event(delta("a"))
    + b": a comment\n\n"
    + event(delta("bü"), "\r\n\r\n")
    + event(delta("d"))
    + event(delta(finish="stop"))
    + event({"choices": [], "usage": USAGE, "draftfleet": {"accepted_length": 2.0, "num_rounds": 2, "drafter": "mtp"}})
    + DONE
)


def test_tokens_of_one_message_share_its_arrival() -> None:
    pieces = [(float(at), part + b"\n\n") for at, part in enumerate(STREAM.replace(b"\r\n", b"\n").split(b"\n\n"))]
    answer = read_answer(pieces)
    assert answer.text == "abüd"
    assert answer.burst_times == (1.0, 3.0, 4.0)
    assert len(answer.token_times) == 5
    assert set(answer.token_times) == {1.0, 3.0, 4.0}
    assert (answer.prompt_tokens, answer.cached_prompt_tokens, answer.are_tokens_told) == (7, 4, True)
    assert answer.finish == "stop"
    assert answer.speculation is not None
    assert (answer.speculation.num_rounds, answer.speculation.num_round_tokens) == (2, 4.0)


@given(cuts=st.sets(st.integers(1, len(STREAM) - 1), max_size=30))
def test_cuts_change_nothing_but_arrivals(cuts: set[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    pieces = [(float(i), STREAM[a:b]) for i, (a, b) in enumerate(pairwise(places))]
    answer, whole = read_answer(pieces), read_answer([(0.0, STREAM)])
    assert (answer.text, answer.finish, answer.prompt_tokens) == (whole.text, whole.finish, whole.prompt_tokens)
    assert len(answer.token_times) == len(whole.token_times)
    assert list(answer.token_times) == sorted(answer.token_times)


def test_completions_say_text() -> None:
    body = {"choices": [{"index": 0, "text": "ab", "finish_reason": "length"}]}
    answer = read_answer([(1.0, event(body) + DONE)])
    assert (answer.text, answer.burst_times) == ("ab", (1.0,))


def test_without_usage_a_message_counts_as_a_token() -> None:
    answer = read_answer(
        [(1.0, event(delta("a"))), (2.0, event(delta("bc"))), (3.0, event(delta(finish="stop")) + DONE)]
    )
    assert answer.token_times == (1.0, 2.0)
    assert not answer.are_tokens_told


def test_an_answer_without_text_arrives_with_its_end() -> None:
    end = event(delta(finish="stop", usage={"prompt_tokens": 3, "completion_tokens": 1}))
    answer = read_answer([(4.0, end + DONE)])
    assert answer.token_times == answer.burst_times == (4.0,)


def test_rounds_are_worked_out_where_an_older_server_leaves_them_out() -> None:
    told = {"draftfleet": {"accepted_length": 2.0}, "usage": {"completion_tokens": 9}}
    answer = read_answer([(1.0, event(delta("abc", finish="length", **told)) + DONE)])
    assert answer.speculation is not None
    assert (answer.speculation.num_rounds, answer.speculation.num_round_tokens) == (4, 8.0)


@pytest.mark.parametrize(
    ("stream", "kind"),
    [
        (event(delta("a")), "cut off"),
        (b"", "cut off"),
        (event(delta("a")) + event({"error": {"code": "overloaded", "message": "later"}}), "stream overloaded"),
        (event({"error": "later"}), "stream error"),
        (b"data: {no json\n\n", "not understood"),
        (b"data: [1]\n\n", "not understood"),
        (event({"choices": [3]}), "not understood"),
        (event(delta("a", finish="stop", usage={"completion_tokens": "many"})), "not understood"),
        (b"data: \xff\xfe\n\n", "not understood"),
    ],
)
def test_what_is_no_answer_is_an_error_of_its_kind(stream: bytes, kind: str) -> None:
    with pytest.raises(StreamError) as told:
        read_answer([(1.0, stream)])
    assert told.value.kind == kind


@given(st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_a_stream_error(data: bytes) -> None:
    with pytest.raises(StreamError):
        read_answer([(0.0, b"data: " + data.replace(b"[DONE]", b""))])


def test_the_closing_mark_stands_for_a_reason_left_out() -> None:
    assert read_answer([(1.0, event(delta("a")) + DONE)]).finish == "unknown"
