"""The official OpenAI client against the running service: every parameter does what its name says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import httpx
import openai
import pydantic
import pytest

from tests.e2e.service import Service

SKY: Any = [{"role": "user", "content": "Why is the sky blue? Answer in one sentence."}]
GREEDY: dict[str, Any] = {"model": "default", "temperature": 0, "max_tokens": 8}
TEXT = {**GREEDY, "prompt": "The capital of France is"}
CHAT = {**GREEDY, "messages": SKY}


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[openai.OpenAI]:
    transport = openai.DefaultHttpxClient(trust_env=False)
    with openai.OpenAI(
        base_url=f"{service.http_url}/v1", api_key="none", max_retries=0, timeout=60, http_client=transport
    ) as ready:
        yield ready


@pytest.fixture(scope="module")
def whole(client: openai.OpenAI) -> str:
    """The greedy answer that many tests compare with."""
    answer = client.completions.create(**TEXT)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 8
    assert answer.choices[0].finish_reason == "length"
    return answer.choices[0].text


# Models.


def test_models(client: openai.OpenAI) -> None:
    names = [model.id for model in client.models.list()]
    assert names == ["SmolLM2-135M-Instruct", "default"]
    for name in names:
        assert client.models.retrieve(name).id == name
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("gpt-4o")
    assert caught.value.code == "model_not_found"


# Completions.


def test_a_batch_answers_as_each_would_alone(client: openai.OpenAI, service: Service, whole: str) -> None:
    prompts = [TEXT["prompt"], "1 2 3 4 5"]
    answer = client.completions.create(**{**TEXT, "prompt": prompts})
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert answer.choices[0].text == whole
    with httpx.Client(base_url=service.http_url, trust_env=False) as plain:
        ids = [plain.post("/tokenize", json={"prompt": prompt}).json()["tokens"] for prompt in prompts]
        texts = [plain.post("/detokenize", json={"tokens": tokens}).json()["prompt"] for tokens in ids]
    assert texts == prompts
    again = client.completions.create(**{**TEXT, "prompt": ids})
    assert [choice.text for choice in again.choices] == [choice.text for choice in answer.choices]
    single = client.completions.create(**{**TEXT, "prompt": ids[0]})
    assert single.choices[0].text == whole


def test_echo_and_logprobs(client: openai.OpenAI, whole: str) -> None:
    choice = client.completions.create(**TEXT, echo=True, logprobs=3).choices[0]
    assert choice.text == TEXT["prompt"] + whole
    told = choice.logprobs
    assert told is not None
    assert told.tokens is not None
    assert told.token_logprobs is not None
    assert told.top_logprobs is not None
    assert told.text_offset is not None
    assert "".join(told.tokens) == choice.text
    assert told.token_logprobs[0] is None
    assert [choice.text[at:].startswith(token) for at, token in zip(told.text_offset, told.tokens, strict=True)]
    for logprob, top in zip(told.token_logprobs[-8:], told.top_logprobs[-8:], strict=True):
        assert logprob == max(top.values())  # greedy


def test_stream_says_the_same_and_ends_with_the_usage(client: openai.OpenAI, whole: str) -> None:
    events = list(client.completions.create(**TEXT, stream=True, stream_options={"include_usage": True}))
    assert "".join(event.choices[0].text for event in events if event.choices) == whole
    assert all(event.usage is None for event in events[:-1])
    assert not events[-1].choices
    assert events[-1].usage is not None
    assert events[-1].usage.completion_tokens == 8
    bare = list(client.completions.create(**TEXT, stream=True))
    assert all(event.usage is None and event.choices for event in bare)


def test_stop_ends_before_the_string(client: openai.OpenAI, whole: str) -> None:
    stop = whole[6:9]
    choice = client.completions.create(**TEXT, stop=[stop, "never said"]).choices[0]
    assert (choice.text, choice.finish_reason) == (whole[: whole.index(stop)], "stop")


def test_seed_and_n(client: openai.OpenAI) -> None:
    sampled = {**TEXT, "temperature": 1.0, "top_p": 0.95, "n": 3}
    first, again = (client.completions.create(**sampled, seed=11) for _ in range(2))
    texts = [choice.text for choice in first.choices]
    assert [choice.text for choice in again.choices] == texts
    assert len(set(texts)) == 3
    other = client.completions.create(**sampled, seed=12)
    assert [choice.text for choice in other.choices] != texts


def tokens_of(client: openai.OpenAI, **fields: Any) -> list[str]:
    told = client.completions.create(**{**TEXT, **fields}, logprobs=0).choices[0].logprobs
    assert told is not None
    assert told.tokens is not None
    return told.tokens


def test_penalties_and_bias_change_the_answer(client: openai.OpenAI, service: Service) -> None:
    looping = {"prompt": "one one one one one one one one", "max_tokens": 16}
    variety = len(set(tokens_of(client, **looping)))
    for penalty in ({"presence_penalty": 2.0}, {"frequency_penalty": 2.0}, {"extra_body": {"repetition_penalty": 1.8}}):
        assert len(set(tokens_of(client, **looping, **penalty))) > variety, penalty
    first = tokens_of(client)[0]
    with httpx.Client(base_url=service.http_url, trust_env=False) as plain:
        (token,) = plain.post("/tokenize", json={"prompt": first}).json()["tokens"]
    assert first not in tokens_of(client, logit_bias={str(token): -100})
    assert set(tokens_of(client, logit_bias={str(token): 100})) == {first}


# Chat.


def test_chat_whole_and_streamed(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(**CHAT)
    text = answer.choices[0].message.content
    assert text
    assert answer.choices[0].message.role == "assistant"
    events = list(client.chat.completions.create(**CHAT, stream=True, stream_options={"include_usage": True}))
    assert events[0].choices[0].delta.role == "assistant"
    assert "".join(e.choices[0].delta.content or "" for e in events if e.choices) == text
    assert events[-2].choices[0].finish_reason == "length"
    assert events[-1].usage == answer.usage or events[-1].usage is not None
    parts = [{"role": "user", "content": [{"type": "text", "text": SKY[0]["content"]}]}]
    assert client.chat.completions.create(**{**CHAT, "messages": parts}).choices[0].message.content == text
    renamed = {name: value for name, value in CHAT.items() if name != "max_tokens"}
    assert client.chat.completions.create(**renamed, max_completion_tokens=8).choices[0].message.content == text


def test_chat_logprobs(client: openai.OpenAI) -> None:
    choice = client.chat.completions.create(**CHAT, logprobs=True, top_logprobs=2).choices[0]
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert len(choice.logprobs.content) == 8
    assert b"".join(bytes(entry.bytes or []) for entry in choice.logprobs.content).decode() == choice.message.content
    for entry in choice.logprobs.content:
        assert entry.token == entry.top_logprobs[0].token  # greedy
        assert len(entry.top_logprobs) == 2


def test_drafts_change_nothing_and_what_clients_add_is_taken(client: openai.OpenAI) -> None:
    texts = {
        client.chat.completions.create(
            **{**CHAT, "max_tokens": 24, "temperature": 0.8, "seed": 3},
            user="someone",
            metadata={"a": "b"},
            store=False,
            service_tier="auto",
            extra_body={"draftfleet": {"drafter": drafter}, "skip_special_tokens": True},
        )
        .choices[0]
        .message.content
        for drafter in ("none", "lookup", "mtp", "dfly")
    }
    assert len(texts) == 1


# Answers of a given form.


class City(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    name: Annotated[str, pydantic.Field(pattern=r"^[A-Z][a-z]{1,8}$")]
    size: Literal["village", "town", "city"]
    rivers: Annotated[list[Annotated[str, pydantic.Field(pattern=r"^[A-Z][a-z]{1,8}$")]], pydantic.Field(max_length=1)]
    is_capital: bool


@pytest.mark.parametrize("temperature", [0, 1.2])
def test_a_schema_is_followed_and_drafts_change_nothing(client: openai.OpenAI, temperature: float) -> None:
    asked: dict[str, Any] = {**CHAT, "temperature": temperature, "seed": 5, "max_tokens": 100}
    asked["messages"] = [{"role": "user", "content": "Describe Paris as JSON."}]
    texts = set()
    for drafter in ("none", "mtp", "dfly"):
        answer = client.chat.completions.parse(
            **asked, response_format=City, extra_body={"draftfleet": {"drafter": drafter}}
        )
        assert answer.choices[0].finish_reason == "stop"
        assert isinstance(answer.choices[0].message.parsed, City)
        texts.add(answer.choices[0].message.content)
    assert len(texts) == 1


def test_any_object(client: openai.OpenAI) -> None:
    asked = {**CHAT, "messages": [{"role": "user", "content": 'Answer with {"a": 1} in JSON.'}], "max_tokens": 60}
    for fields in ({}, {"stream": True}):
        answer: Any = client.chat.completions.create(**asked, response_format={"type": "json_object"}, **fields)  # type: ignore[call-overload]
        if fields:
            text = "".join(event.choices[0].delta.content or "" for event in answer)
        else:
            text = answer.choices[0].message.content
            assert answer.choices[0].finish_reason == "stop"
        assert isinstance(json.loads(text), dict)


def test_a_schema_that_cannot_be_followed(client: openai.OpenAI) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {}}}}
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(**CHAT, response_format=form, stream=stream)
        assert (caught.value.param, caught.value.code) == ("response_format", "invalid_value")


# Mistakes.


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"temperature": 3}, "temperature", "invalid_value"),
        ({"top_p": 0}, "top_p", "invalid_value"),
        ({"n": 17}, "n", "invalid_value"),
        ({"max_tokens": 100_000}, "max_tokens", "invalid_value"),
        ({"best_of": 2}, "best_of", "unsupported_parameter"),
        ({"logprobs": 21}, "logprobs", "invalid_value"),
        ({"logit_bias": {"99999": 1}}, "logit_bias", "invalid_value"),
        ({"presence_penalty": 2.5}, "presence_penalty", "invalid_value"),
        ({"prompt": []}, "prompt", "invalid_value"),
        ({"extra_body": {"temprature": 1}}, "temprature", "unknown_parameter"),
    ],
)
def test_mistakes_name_their_parameter(client: openai.OpenAI, fields: dict[str, Any], param: str, code: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(**{**TEXT, **fields})
    assert (caught.value.param, caught.value.code, caught.value.type) == (param, code, "invalid_request_error")
    assert param in caught.value.message
