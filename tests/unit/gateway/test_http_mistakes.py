"""What the HTTP door says of requests that it does not serve."""

from __future__ import annotations

import functools
from typing import Any

import httpx
import pytest
from transformers import PreTrainedTokenizerFast

from tests.unit.gateway.conftest import Setup, opened
from tests.unit.gateway.scripted import endless

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "x"}]}
TEXT = {"model": "tiny", "prompt": "x"}
DEEP: dict[str, Any] = functools.reduce(lambda inner, _: {"a": inner}, range(33), {})

MISTAKES: dict[str, tuple[str, dict[str, Any], int, str, str]] = {
    "empty prompt": ("completions", {**TEXT, "prompt": ""}, 400, "prompt", "must not be empty"),
    "empty list": ("completions", {**TEXT, "prompt": []}, 400, "prompt", "must not be empty"),
    "one empty prompt": ("completions", {**TEXT, "prompt": ["a", ""]}, 400, "prompt[1]", "must not be empty"),
    "mixed prompt": ("completions", {**TEXT, "prompt": ["a", 5]}, 400, "prompt", "a string, a list of strings"),
    "prompt missing": ("completions", {"model": "tiny"}, 400, "prompt", "required"),
    "id past the vocabulary": ("completions", {**TEXT, "prompt": [400]}, 400, "prompt", "at most 399"),
    "negative id": ("completions", {**TEXT, "prompt": [-1]}, 400, "prompt", "at least 0"),
    "prompt past the context": ("completions", {**TEXT, "prompt": [5] * 64}, 400, "prompt", "at most 63"),
    "max_tokens past the context": (
        "completions",
        {**TEXT, "prompt": [5] * 60, "max_tokens": 5},
        400,
        "max_tokens",
        "at most 4",
    ),
    "max_tokens past the bound": ("completions", {**TEXT, "max_tokens": 49}, 400, "max_tokens", "at most 48"),
    "max_completion_tokens past the bound": (
        "chat/completions",
        {**CHAT, "max_completion_tokens": 49},
        400,
        "max_completion_tokens",
        "at most 48",
    ),
    "max_tokens 0": ("completions", {**TEXT, "max_tokens": 0}, 400, "max_tokens", "at least 1"),
    "max_tokens text": ("completions", {**TEXT, "max_tokens": "5"}, 400, "max_tokens", "integer"),
    "unknown model": ("completions", {**TEXT, "model": "gpt"}, 404, "model", "'tiny' or 'default'"),
    "unknown field": ("completions", {**TEXT, "temprature": 1}, 400, "temprature", "did you mean 'temperature'?"),
    "unknown nested field": (
        "completions",
        {**TEXT, "draftfleet": {"draftr": "mtp"}},
        400,
        "draftfleet.draftr",
        "did you mean 'drafter'?",
    ),
    "unknown drafter": (
        "completions",
        {**TEXT, "draftfleet": {"drafter": "eagle"}},
        400,
        "draftfleet.drafter",
        "must be one of auto",
    ),
    "negative temperature": ("completions", {**TEXT, "temperature": -1}, 400, "temperature", "at least 0.0"),
    "negative seed": ("completions", {**TEXT, "seed": -1}, 400, "seed", "at least 0"),
    "bias of no token": ("completions", {**TEXT, "logit_bias": {"x": 1}}, 400, "logit_bias", "not a token id"),
    "bias past the vocabulary": ("completions", {**TEXT, "logit_bias": {"400": 1}}, 400, "logit_bias", "at most 399"),
    "best_of": ("completions", {**TEXT, "best_of": 2}, 400, "best_of", "not supported yet"),
    "suffix": ("completions", {**TEXT, "suffix": "x"}, 400, "suffix", "not supported yet"),
    "beam search": ("completions", {**TEXT, "use_beam_search": True}, 400, "use_beam_search", "only false"),
    "special tokens kept": ("completions", {**TEXT, "skip_special_tokens": False}, 400, "skip_special_tokens", "true"),
    "allowed ids": ("completions", {**TEXT, "allowed_token_ids": [1]}, 400, "allowed_token_ids", "leave it out"),
    "another template": ("chat/completions", {**CHAT, "chat_template": "x"}, 400, "chat_template", "leave it out"),
    "empty bad word": ("completions", {**TEXT, "bad_words": [" "]}, 400, "bad_words[0]", "must not be empty"),
    "too many choices": ("completions", {**TEXT, "prompt": ["a"] * 33, "n": 2}, 400, "n", "at most 64"),
    "stream options alone": (
        "completions",
        {**TEXT, "stream_options": {"include_usage": True}},
        400,
        "stream_options",
        "needs stream",
    ),
    "no messages": ("chat/completions", {**CHAT, "messages": []}, 400, "messages", "must not be empty"),
    "foreign role": (
        "chat/completions",
        {**CHAT, "messages": [{"role": "judge", "content": "x"}]},
        400,
        "messages[0].role",
        "'system'",
    ),
    "image": (
        "chat/completions",
        {**CHAT, "messages": [{"role": "user", "content": [{"type": "image_url", "text": "x"}]}]},
        400,
        "messages[0].content[0].type",
        "'text'",
    ),
    "tool without a function": (
        "chat/completions",
        {**CHAT, "tools": [{"type": "function"}]},
        400,
        "tools[0].function",
        "required",
    ),
    "unknown format": (
        "chat/completions",
        {**CHAT, "response_format": {"type": "xml"}},
        400,
        "response_format.type",
        "'json_schema'",
    ),
    "no schema": (
        "chat/completions",
        {**CHAT, "response_format": {"type": "json_schema"}},
        400,
        "response_format.json_schema",
        "required",
    ),
    "schema of no object": (
        "chat/completions",
        {**CHAT, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": []}}},
        400,
        "response_format.json_schema.schema",
        "dictionary",
    ),
    "deep schema": (
        "completions",
        {**TEXT, "response_format": {"type": "json_schema", "json_schema": {"schema": DEEP}}},
        400,
        "response_format",
        "at most 32 levels",
    ),
    "top_logprobs alone": ("chat/completions", {**CHAT, "top_logprobs": 2}, 400, "top_logprobs", "needs logprobs"),
    "too many top_logprobs": (
        "chat/completions",
        {**CHAT, "logprobs": True, "top_logprobs": 21},
        400,
        "top_logprobs",
        "at most 20",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
async def test_a_mistake_is_told_with_its_field_and_the_service_goes_on(setup: Setup, name: str) -> None:
    path, body, status, field, message = MISTAKES[name]
    async with httpx.AsyncClient(base_url=f"{setup.url}/v1/") as plain:
        reply = await plain.post(path, json=body)
        assert reply.status_code == status, reply.text
        error = reply.json()["error"]
        assert error["param"] == field
        assert message in error["message"]
        assert error["type"] == "invalid_request_error"
        assert (await plain.post("completions", json=TEXT)).status_code == 200
    assert setup.gateway.admission.active == 0


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b'{"model": "tiny", "prompt": "\xff"}', 400, "not valid UTF-8"),
        (b'{"model": "tiny", "prompt": "\\ud800"}', 400, "not valid JSON"),
        (b'{"model": ', 400, "not valid JSON"),
        (b'{"model": "tiny", "prompt": "a", "temperature": NaN}', 400, "not valid JSON"),
        (b"[" * 100_000, 400, "not valid JSON"),
        (b"[]", 400, "must be a JSON object"),
        (b" " * (1 << 17), 413, "at most 65536 bytes"),
    ],
)
async def test_bodies_that_are_no_requests(
    tokenizer: PreTrainedTokenizerFast, body: bytes, status: int, message: str
) -> None:
    limit = 65536 if status == 413 else 1 << 20
    async with opened(tokenizer, max_body_bytes=limit) as setup, httpx.AsyncClient(base_url=setup.url) as plain:
        reply = await plain.post("/v1/completions", content=body)
        assert reply.status_code == status
        assert message in reply.json()["error"]["message"]
        assert (await plain.post("/v1/completions", json=TEXT)).status_code == 200


async def test_errors_never_repeat_the_prompt(setup: Setup) -> None:
    secret = "my secret plan"
    async with httpx.AsyncClient(base_url=setup.url) as plain:
        for body in (
            {**TEXT, "prompt": {"a": secret}},
            {**CHAT, "messages": secret},
            {**TEXT, "stop": [{"x": secret}]},
        ):
            path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
            reply = await plain.post(path, json=body)
            assert reply.status_code == 400
            assert secret not in reply.text


async def test_long_prompt_text_is_refused_before_it_is_tokenized(tokenizer: PreTrainedTokenizerFast) -> None:
    async with opened(tokenizer, max_prompt_characters=10) as setup, httpx.AsyncClient(base_url=setup.url) as plain:
        reply = await plain.post("/v1/completions", json={**TEXT, "prompt": "x" * 11})
        assert reply.status_code == 400
        assert reply.json()["error"]["param"] == "prompt"


async def test_unknown_path_and_wrong_method(setup: Setup) -> None:
    async with httpx.AsyncClient(base_url=setup.url) as plain:
        reply = await plain.get("/v1/nothing")
        assert (reply.status_code, reply.json()["error"]["code"]) == (404, "unknown_url")
        reply = await plain.get("/v1/completions")
        assert (reply.status_code, reply.json()["error"]["code"]) == (405, "method_not_allowed")


async def test_too_many_requests(tokenizer: PreTrainedTokenizerFast) -> None:
    async with (
        opened(tokenizer, max_concurrent_requests=1, retry_after_s=2.5) as setup,
        httpx.AsyncClient(base_url=setup.url) as plain,
    ):
        setup.target.script = endless
        async with plain.stream("POST", "/v1/completions", json={**TEXT, "stream": True}) as first:
            assert first.status_code == 200
            reply = await plain.post("/v1/completions", json=TEXT)
            assert (reply.status_code, reply.headers["retry-after"]) == (429, "3")
