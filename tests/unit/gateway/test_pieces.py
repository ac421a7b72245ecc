"""The small parts: errors, admission, merging, bytes of tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from services.gateway.access.limits import Limiter
from services.gateway.admission import Admission
from services.gateway.errors import ApiError, ErrorKind
from services.gateway.merging import merge
from services.gateway.token_text import TextOffsets, TokenBytes, shown
from tests.unit.gateway.tokenizers import byte_fallback


def test_the_field_of_a_value_error_is_named_as_the_client_wrote_it() -> None:
    error = ApiError.of_value(ValueError("logprobs: 21 is out of range"), {"logprobs": "top_logprobs"})
    assert (error.field, error.message) == ("top_logprobs", "top_logprobs: 21 is out of range")
    error = ApiError.of_value(ValueError("logit_bias[5]: 200 is out of range"))
    assert (error.field, error.message) == ("logit_bias", "logit_bias[5]: 200 is out of range")
    error = ApiError.of_value(ValueError("stop[...] characters: 300 is too many"))
    assert (error.field, error.message) == ("stop", "stop[...] characters: 300 is too many")
    assert ApiError.of_value(ValueError("no field here")).field is None


def test_retry_after_is_in_whole_seconds_and_never_zero() -> None:
    assert ApiError(ErrorKind.OVERLOADED, "x", retry_after_s=0.2).http_headers() == {"Retry-After": "1"}
    assert ApiError(ErrorKind.OVERLOADED, "x", retry_after_s=1.2).http_headers() == {"Retry-After": "2"}
    assert ApiError(ErrorKind.INVALID, "x").http_headers() == {}


def test_admission_counts_and_refuses() -> None:
    admission = Admission(limit=1, retry_after_s=1, limiter=Limiter(1))
    with admission.enter():
        with pytest.raises(ApiError) as caught, admission.enter():
            pass
        assert caught.value.kind is ErrorKind.OVERLOADED
        assert (admission.active, admission.refused) == (1, 1)
    assert admission.active == 0
    admission.is_draining = True
    with pytest.raises(ApiError) as caught, admission.enter():
        pass
    assert caught.value.kind is ErrorKind.UNAVAILABLE


async def test_merge_gives_every_item_in_each_streams_order() -> None:
    async def count(upto: int) -> AsyncGenerator[int, None]:
        for number in range(upto):
            await asyncio.sleep(0)
            yield number

    merged = [item async for item in merge([count(20), count(0), count(50)])]
    for index, upto in enumerate((20, 0, 50)):
        assert [number for i, number in merged if i == index] == list(range(upto))


async def test_merge_ends_all_streams_with_the_first_failure_and_when_closed() -> None:
    ended: list[str] = []

    async def endless(name: str) -> AsyncGenerator[int, None]:
        try:
            while True:
                await asyncio.sleep(0)
                yield 1
        finally:
            ended.append(name)

    async def failing() -> AsyncGenerator[int, None]:
        yield 1
        raise ApiError(ErrorKind.UNAVAILABLE, "lost")

    with pytest.raises(ApiError, match="lost"):
        [item async for item in merge([endless("a"), failing()])]
    await asyncio.sleep(0.01)
    assert ended == ["a"]
    async with aclosing(merge([endless("b"), endless("c")])) as stream:
        await anext(stream)
    await asyncio.sleep(0.01)
    assert sorted(ended) == ["a", "b", "c"]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(st.text(max_size=20))
def test_bytes_of_byte_level_tokens_are_the_texts(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    token_bytes = TokenBytes(tokenizer)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert b"".join(map(token_bytes, ids)) == text.encode()


def test_bytes_of_byte_fallback_tokens() -> None:
    tokenizer = byte_fallback()
    token_bytes = TokenBytes(tokenizer)
    ids = tokenizer.convert_tokens_to_ids(["\u2581the", "\u2581", "dog", "<0xC3>", "<0xA9>"])
    assert b"".join(map(token_bytes, ids)).decode() == " the dog\u00e9"


def test_special_and_missing_tokens(tokenizer: PreTrainedTokenizerFast) -> None:
    token_bytes = TokenBytes(tokenizer)
    assert token_bytes(tokenizer.convert_tokens_to_ids("<|end|>")) == b"<|end|>"
    assert token_bytes(399) == b""  # the embedding matrix may be larger than the vocabulary


def test_incomplete_characters_are_shown_by_their_bytes() -> None:
    assert shown(b"caf\xc3\xa9") == "caf\u00e9"
    assert shown(b"\xc3") == "bytes:\\xc3"


def test_offsets_count_characters_of_the_text() -> None:
    offsets = TextOffsets()
    assert offsets.of([b"a", b"\xf0\x9f", b"\x98\x80", b"b"]) == [0, 1, 1, 2]
    assert offsets.of([b"c"]) == [3]
