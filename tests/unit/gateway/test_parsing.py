"""Bodies that are almost requests."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.gateway.errors import ApiError, ErrorKind
from services.gateway.openai.parsing import parse
from services.gateway.openai.schema import ChatRequest, CompletionRequest
from services.gateway.openai.translation import chat, completion, prompts_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(sorted({*CompletionRequest.model_fields, *ChatRequest.model_fields, "str", "x[0]"}))


def _error_of(body: bytes, is_chat: bool) -> ApiError | None:
    try:
        if is_chat:
            chat(parse(body, ChatRequest))
        else:
            request = parse(body, CompletionRequest)
            prompts_of(request)
            completion(request)
    except ApiError as error:
        return error
    return None


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(FIELDS, JSON, max_size=4), st.booleans())
def test_any_object_is_a_request_or_an_error_with_a_field(changes: dict[str, Any], is_chat: bool) -> None:
    base = {"messages": [{"role": "user", "content": "x"}]} if is_chat else {"prompt": "x"}
    body = json.dumps({"model": "m", **base, **changes}).encode()
    error = _error_of(body, is_chat)
    if error is not None:
        assert error.http_status == 400
        assert error.field
        assert error.message.startswith(error.field)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=64))
def test_any_bytes_are_no_crash(data: bytes) -> None:
    with pytest.raises(ApiError):
        parse(data, CompletionRequest)


@pytest.mark.parametrize(
    ("unknown", "field", "hint"),
    [
        ({"max_token": 5}, "max_token", "did you mean 'max_tokens'?"),
        ({"draftfleet": {"max_draft_token": 5}}, "draftfleet.max_draft_token", "did you mean 'max_draft_tokens'?"),
        ({"stream": True, "stream_options": {"usage": True}}, "stream_options.usage", "include_usage"),
        ({"zzz": 1}, "zzz", "bad_words, best_of, draftfleet, "),
        ({"str": 1}, "str", "unknown field"),
        ({"x" * 999: 1}, "x" * 64, "unknown field"),
    ],
)
def test_unknown_fields_are_told_with_the_nearest_known(unknown: dict[str, Any], field: str, hint: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse(json.dumps({"model": "m", "prompt": "x", **unknown}).encode(), CompletionRequest)
    assert caught.value.kind is ErrorKind.UNKNOWN_FIELD
    assert caught.value.field == field
    assert hint in caught.value.message


def test_nulls_are_defaults() -> None:
    nulls = {name: None for name in CompletionRequest.model_fields if name not in ("model", "prompt")}
    given_nulls = completion(parse(json.dumps({"model": "m", "prompt": "x", **nulls}).encode(), CompletionRequest))
    assert given_nulls == completion(parse(b'{"model": "m", "prompt": "x"}', CompletionRequest))
    nulls = {name: None for name in ChatRequest.model_fields if name not in ("model", "messages")}
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    assert chat(parse(json.dumps({**body, **nulls}).encode(), ChatRequest)) == chat(
        parse(json.dumps(body).encode(), ChatRequest)
    )


def test_an_answer_can_be_sent_back_as_a_message() -> None:
    answered = {
        "role": "assistant",
        "content": "hi",
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": None,
    }
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}, answered, {"role": "user", "content": "y"}]}
    request = parse(json.dumps(body).encode(), ChatRequest)
    assert [message.text() for message in request.messages] == ["x", "hi", "y"]
