"""The HTTP door by the official OpenAI client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import httpx
import openai
import pytest
from transformers import PreTrainedTokenizerFast

from protos import generation_pb2 as pb
from protos import target_pb2
from tests.unit.gateway.conftest import Setup, until
from tests.unit.gateway.scripted import Script, endless, fail, finish, member


@pytest.fixture
async def client(setup: Setup) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{setup.url}/v1", api_key="none", max_retries=0) as ready:
        yield ready


def chunks(*given: pb.GenerateChunk) -> Script:
    async def script(
        request: target_pb2.TargetRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.GenerateChunk]:
        for chunk in given:
            yield chunk

    return script


def scored(token_id: int, logprob: float, *top: tuple[int, float]) -> pb.TokenLogprobs:
    return pb.TokenLogprobs(
        token_id=token_id, logprob=logprob, top=[pb.Alternative(token_id=t, logprob=value) for t, value in top]
    )


# Whole answers.


async def test_chat(setup: Setup, client: openai.AsyncOpenAI, tokenizer: PreTrainedTokenizerFast) -> None:
    answer = await client.chat.completions.create(
        model="default",
        messages=[
            {"role": "system", "content": "be quick"},
            {"role": "user", "content": [{"type": "text", "text": "hi "}, {"type": "text", "text": "there"}]},
        ],
        user="someone",
        metadata={"a": "b"},
        store=False,
        extra_body={"draftfleet": {"drafter": "dfly", "max_draft_tokens": 3}},
    )
    assert answer.object == "chat.completion"
    assert answer.id.startswith("chatcmpl-")
    assert answer.model == "default"
    assert answer.choices[0].message.content == "hello world"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].logprobs is None
    sent = setup.target.requests[0]
    assert tokenizer.decode(sent.prompt_ids) == (
        "<|start|>system\nbe quick<|end|>\n<|start|>user\nhi there<|end|>\n<|start|>assistant\n"
    )
    assert (sent.speculation.drafter, sent.speculation.max_draft_tokens) == ("dfly", 3)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(sent.prompt_ids)
    assert answer.usage.total_tokens == len(sent.prompt_ids) + 2
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 1
    assert sent.sampling.temperature == 1.0
    assert sent.sampling.max_tokens == min(48, 64 - len(sent.prompt_ids))
    assert answer.model_extra is not None
    told = dict(answer.model_extra["draftfleet"])
    assert 1 / 3 < told.pop("class_confidence") <= 1
    assert told == {
        "drafter": "lookup",
        "requested_drafter": "auto",
        "accepted_length": 2.5,
        "num_rounds": 4,
        "num_drafts": 3,
        "num_draft_tokens": 9,
        "num_accepted_tokens": 6,
        "exactness": "bitwise",
        "class": sent.task_class,
        "seed": sent.sampling.seed,
    }


async def test_every_sampling_field_reaches_the_target(
    setup: Setup, client: openai.AsyncOpenAI, tokenizer: PreTrainedTokenizerFast
) -> None:
    await client.completions.create(
        model="tiny",
        prompt="the dog",
        max_tokens=9,
        temperature=0.5,
        top_p=0.25,
        n=2,
        stop=["a", "b"],
        seed=7,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        logit_bias={"5": -100},
        logprobs=3,
        extra_body={
            "top_k": 4,
            "min_p": 0.125,
            "repetition_penalty": 1.5,
            "min_tokens": 2,
            "stop_token_ids": [8],
            "ignore_eos": True,
            "bad_words": ["fox"],
            "prompt_logprobs": 1,
            "include_stop_str_in_output": True,
        },
    )
    words = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("fox", " fox")]
    assert setup.target.requests[0].sampling == pb.Sampling(
        max_tokens=9,
        temperature=0.5,
        top_p=0.25,
        n=2,
        stop=["a", "b"],
        seed=7,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        logit_bias={5: -100.0},
        logprobs=3,
        top_k=4,
        min_p=0.125,
        repetition_penalty=1.5,
        min_tokens=2,
        stop_token_ids=[8],
        ignore_eos=True,
        bad_words=[pb.TokenIds(ids=word) for word in words],
        prompt_logprobs=1,
        include_stop=True,
    )


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, {"type": "object"}),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": {"z": {}, "a": "\u00e9"}}},
            {"z": {}, "a": "\u00e9"},
        ),
    ],
)
async def test_the_response_format_reaches_the_target(
    setup: Setup, client: openai.AsyncOpenAI, form: Any, expected: dict[str, Any] | None
) -> None:
    messages: Any = [{"role": "user", "content": "x"}]
    await client.chat.completions.create(model="tiny", messages=messages, response_format=form)
    await client.completions.create(model="tiny", prompt="x", extra_body={"response_format": form})
    for request in setup.target.requests:
        assert request.sampling.HasField("response_format") == (expected is not None)
        if expected is not None:
            sent = json.loads(request.sampling.response_format.json_schema)
            assert sent == expected
            assert list(sent) == list(expected)  # the order in which they will be written


async def test_a_schema_that_the_target_refuses_is_the_clients_error(setup: Setup, client: openai.AsyncOpenAI) -> None:
    setup.target.script = fail(grpc.StatusCode.INVALID_ARGUMENT, "response_format: it cannot be followed (x)")
    form: Any = {"type": "json_object"}
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            await client.completions.create(
                model="tiny", prompt="x", stream=stream, extra_body={"response_format": form}
            )
        assert caught.value.param == "response_format"
        assert "response_format: it cannot be followed (x)" in caught.value.message


async def test_completions_defaults(setup: Setup, client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(model="tiny", prompt="the dog")
    assert answer.object == "text_completion"
    assert answer.id.startswith("cmpl-")
    assert answer.choices[0].text == "hello world"
    assert setup.target.requests[0].sampling.max_tokens == 16
    await client.completions.create(model="tiny", prompt=[5] * 60)
    assert setup.target.requests[1].sampling.max_tokens == 4  # a default never asks past the context


@pytest.mark.parametrize("prompt", [["the dog", "a fox"], [[7, 8, 9], [10, 11]]])
async def test_several_prompts_and_choices(
    setup: Setup, client: openai.AsyncOpenAI, tokenizer: PreTrainedTokenizerFast, prompt: Any
) -> None:
    answer = await client.completions.create(model="tiny", prompt=prompt, n=2, echo=True)
    texts = [p if isinstance(p, str) else tokenizer.decode(p) for p in prompt]
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert [choice.text for choice in answer.choices] == [f"{t}hello world" for t in texts for _ in range(2)]
    sent = sorted(setup.target.requests, key=lambda request: texts.index(tokenizer.decode(request.prompt_ids)))
    assert len({request.sampling.seed for request in sent}) == 1  # each prompt answers as it would alone
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == sum(len(request.prompt_ids) for request in sent)
    assert answer.usage.completion_tokens == 8


async def test_statistics_of_several_choices_are_summed(setup: Setup, client: openai.AsyncOpenAI) -> None:
    first, second = finish(0), finish(1, drafter="mtp")
    second.speculation.num_rounds, second.speculation.accepted_length = 12, 1.0
    second.speculation.exactness = "ties"
    setup.target.script = chunks(first, second)
    answer = await client.completions.create(model="tiny", prompt="a", n=2)
    told = (answer.model_extra or {})["draftfleet"]
    assert told["drafter"] == "lookup,mtp"
    assert told["accepted_length"] == (4 * 2.5 + 12 * 1.0) / 16
    assert told["num_draft_tokens"] == 18
    assert told["exactness"] == "ties"


async def test_the_class_of_every_prompt_is_told(setup: Setup, client: openai.AsyncOpenAI) -> None:
    code, maths = "def f(x):", "3x + 7 = 22, x = ?"
    answer = await client.completions.create(model="tiny", prompt=code)
    assert (answer.model_extra or {})["draftfleet"]["class"] == "code"
    answer = await client.completions.create(model="tiny", prompt=[code, maths])
    told = (answer.model_extra or {})["draftfleet"]
    assert told["class"] == "code,maths"
    sent = {request.task_class: request.class_confidence for request in setup.target.requests[1:]}
    assert told["class_confidence"] == pytest.approx(min(sent.values()), abs=1e-4)


async def test_token_ids_are_classified_by_their_text(
    setup: Setup, client: openai.AsyncOpenAI, tokenizer: PreTrainedTokenizerFast
) -> None:
    ids = tokenizer("3x + 7 = 22, x = ?")["input_ids"]
    await client.completions.create(model="tiny", prompt=ids)
    await client.completions.create(model="tiny", prompt="3x + 7 = 22, x = ?")
    by_ids, by_text = setup.target.requests
    assert by_ids.task_class == "maths"
    assert by_ids.class_confidence == pytest.approx(by_text.class_confidence, abs=0.1)


async def test_stop_reason_and_length(setup: Setup, client: openai.AsyncOpenAI) -> None:
    setup.target.script = chunks(finish(text="x", stop_reason="END"))
    choice = (await client.completions.create(model="tiny", prompt="a")).choices[0]
    assert (choice.finish_reason, (choice.model_extra or {})["stop_reason"]) == ("stop", "END")
    setup.target.script = chunks(finish(text="x", reason=pb.FINISH_REASON_LENGTH))
    choice = (await client.completions.create(model="tiny", prompt="a")).choices[0]
    assert (choice.finish_reason, (choice.model_extra or {})["stop_reason"]) == ("length", None)


# Logprobs.


async def test_chat_logprobs(setup: Setup, client: openai.AsyncOpenAI, tokenizer: PreTrainedTokenizerFast) -> None:
    face = tokenizer("\U0001f600", add_special_tokens=False)["input_ids"]
    fox = tokenizer(" fox", add_special_tokens=False)["input_ids"][0]
    script = chunks(
        pb.GenerateChunk(token_ids=face, logprobs=[scored(token, -0.5, (token, -0.5), (fox, -2.0)) for token in face]),
        finish(text="\U0001f600 f", logprobs=[scored(fox, float("-inf"), (face[0], -0.25))]),
    )
    setup.target.script = script
    answer = await client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": "x"}], logprobs=True, top_logprobs=1
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert b"".join(bytes(entry.bytes or []) for entry in logprobs.content[:-1]).decode() == "\U0001f600"
    last = logprobs.content[-1]
    assert last.token == tokenizer.decode([fox])
    assert last.logprob == -9999.0
    assert [len(entry.top_logprobs) for entry in logprobs.content] == [1] * len(logprobs.content)
    assert setup.target.requests[0].sampling.logprobs == 1

    plain = await client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": "x"}], logprobs=True
    )
    assert plain.choices[0].logprobs is not None
    assert plain.choices[0].logprobs.content is not None
    assert plain.choices[0].logprobs.content[0].top_logprobs == []


async def test_completion_logprobs_with_echo(
    setup: Setup, client: openai.AsyncOpenAI, tokenizer: PreTrainedTokenizerFast
) -> None:
    prompt = tokenizer("the dog")["input_ids"]
    said = tokenizer("fox jumps", add_special_tokens=False)["input_ids"]
    setup.target.script = chunks(
        pb.GenerateChunk(
            text="fox",
            prompt_logprobs=[scored(t, -1.0, (9, -0.5)) for t in prompt[1:]],
            logprobs=[scored(said[0], -3.0)],
        ),
        finish(text=" jumps", logprobs=[scored(token, -0.5, (token, -0.5)) for token in said[1:]]),
    )
    answer = await client.completions.create(model="tiny", prompt="the dog", echo=True, logprobs=1)
    choice = answer.choices[0]
    assert choice.text == "the dogfox jumps"
    logprobs = choice.logprobs
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert logprobs.text_offset is not None
    assert logprobs.token_logprobs is not None
    assert logprobs.top_logprobs is not None
    assert "".join(logprobs.tokens) == choice.text
    assert logprobs.token_logprobs[0] is None
    assert logprobs.top_logprobs[0] is None
    assert logprobs.token_logprobs[1:] == [-1.0] * (len(prompt) - 1) + [-3.0] + [-0.5] * (len(said) - 1)
    for token, offset in zip(logprobs.tokens, logprobs.text_offset, strict=True):
        assert choice.text[offset:].startswith(token)
    first_said = len(prompt)
    assert logprobs.top_logprobs[first_said] == {logprobs.tokens[first_said]: -3.0}  # the token itself, always
    assert set(logprobs.top_logprobs[1]) == {tokenizer.decode([9]), logprobs.tokens[1]}
    assert setup.target.requests[0].sampling.prompt_logprobs == 1


async def test_prompt_logprobs(setup: Setup, client: openai.AsyncOpenAI) -> None:
    setup.target.script = chunks(finish(text="x", prompt_logprobs=[scored(8, -1.0, (9, -0.5))]))
    answer = await client.completions.create(model="tiny", prompt=[7, 8], extra_body={"prompt_logprobs": 1})
    told = (answer.choices[0].model_extra or {})["prompt_logprobs"]
    assert told[0] is None
    assert {token: entry["logprob"] for token, entry in told[1].items()} == {"8": -1.0, "9": -0.5}
    assert answer.choices[0].logprobs is None


# Streams.


async def test_chat_stream(setup: Setup, client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "x"}],
        n=2,
        stream=True,
        stream_options={"include_usage": True},
    )
    events = [event async for event in stream]
    assert len({event.id for event in events}) == 1
    assert {event.object for event in events} == {"chat.completion.chunk"}
    texts = {0: "", 1: ""}
    roles: dict[int, list[str | None]] = {0: [], 1: []}
    ends: dict[int, str | None] = {}
    for event in events[:-1]:
        choice = event.choices[0]
        texts[choice.index] += choice.delta.content or ""
        if choice.delta.role:
            roles[choice.index].append(choice.delta.role)
        if choice.finish_reason:
            ends[choice.index] = choice.finish_reason
        assert event.usage is None
    assert texts == {0: "hello world", 1: "hello world"}
    assert roles == {0: ["assistant"], 1: ["assistant"]}
    assert ends == {0: "stop", 1: "stop"}
    assert events[-1].choices == []
    assert events[-1].usage is not None
    assert events[-1].usage.completion_tokens == 4
    seed = setup.target.requests[0].sampling.seed
    opening = (events[0].model_extra or {})["draftfleet"]
    assert (opening["seed"], opening["class"]) == (seed, setup.target.requests[0].task_class)
    assert opening.keys() == {"seed", "class", "class_confidence"}
    assert (events[-1].model_extra or {})["draftfleet"]["num_accepted_tokens"] == 12
    assert not any("draftfleet" in (event.model_extra or {}) for event in events[1:-1])


async def test_completion_stream_without_usage(setup: Setup, client: openai.AsyncOpenAI) -> None:
    stream = await client.completions.create(model="tiny", prompt=["a", "b"], echo=True, stream=True)
    texts = {0: "", 1: ""}
    events = [event async for event in stream]
    for event in events:
        texts[event.choices[0].index] += event.choices[0].text
    assert texts == {0: "ahello world", 1: "bhello world"}
    assert (events[-1].model_extra or {})["draftfleet"]["exactness"] == "bitwise"
    assert all(event.usage is None for event in events)


async def test_one_step_is_one_event(setup: Setup, client: openai.AsyncOpenAI) -> None:
    setup.target.script = chunks(pb.GenerateChunk(text=""), pb.GenerateChunk(text="ab", token_ids=[1, 2]), finish())
    stream = await client.completions.create(model="tiny", prompt="a", stream=True)
    assert [(e.choices[0].text, e.choices[0].finish_reason) async for e in stream] == [("ab", None), ("", "stop")]


async def test_the_stream_ends_with_done(setup: Setup) -> None:
    async with httpx.AsyncClient() as plain:
        reply = await plain.post(f"{setup.url}/v1/completions", json={"model": "tiny", "prompt": "a", "stream": True})
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.text.endswith("data: [DONE]\n\n")
    lines = [line for line in reply.text.split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines)
    assert reply.headers["x-request-id"] == json.loads(lines[0][6:])["id"]


async def test_a_stream_lost_midway_is_an_error_event(setup: Setup, client: openai.AsyncOpenAI) -> None:
    setup.target.script = fail(grpc.StatusCode.INTERNAL, "engine", after=[pb.GenerateChunk(text="par")])
    stream = await client.completions.create(model="tiny", prompt="a", stream=True)
    first = await anext(aiter(stream))
    assert first.choices[0].text == "par"
    with pytest.raises(openai.APIError, match="lost while it answered"):
        await anext(aiter(stream))
    assert setup.gateway.admission.active == 0


async def test_an_error_before_the_first_token_has_its_status(setup: Setup, client: openai.AsyncOpenAI) -> None:
    setup.target.script = fail(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
    with pytest.raises(openai.RateLimitError) as caught:
        await client.completions.create(model="tiny", prompt="a", stream=True)
    assert caught.value.response.headers["retry-after"] == "1"


# Clients that go away.


@pytest.mark.parametrize(
    ("stream", "n"), [(True, 1), (True, 2), (False, 1)], ids=["mid-stream", "before the first token", "whole answer"]
)
async def test_a_client_that_goes_away_ends_the_generation(setup: Setup, stream: bool, n: int) -> None:
    setup.target.script = endless
    body = {"model": "tiny", "prompt": "a", "stream": stream, "n": n}

    async def ask() -> None:
        async with (
            httpx.AsyncClient() as plain,
            plain.stream("POST", f"{setup.url}/v1/completions", json=body, timeout=60) as reply,
        ):
            async for _ in reply.aiter_bytes():
                pass

    asking = asyncio.create_task(ask())
    await until(lambda: setup.target.requests)
    await asyncio.sleep(0.1)
    asking.cancel()
    await asyncio.wait_for(setup.target.was_cancelled.wait(), 10)
    await until(lambda: not setup.gateway.admission.active)


async def test_models(setup: Setup, client: openai.AsyncOpenAI) -> None:
    listed = [model async for model in client.models.list()]
    assert [model.id for model in listed] == ["tiny", "default"]
    one = await client.models.retrieve("default")
    assert (one.model_extra or {})["max_model_len"] == 64
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("other")


async def test_health_readiness_and_status(setup: Setup) -> None:
    setup.members.append(member("drafter", "d0", "127.0.0.1:1", kind="mtp"))
    async with httpx.AsyncClient(base_url=setup.url) as plain:
        assert (await plain.get("/healthz")).status_code == 200
        assert (await plain.get("/readyz")).status_code == 200
        status = (await plain.get("/status")).json()
        assert status["model"]["drafters"] == ["mtp"]
        assert [m["replica"] for m in status["members"]] == ["target-0", "d0"]
        setup.members.clear()
        assert (await plain.get("/healthz")).status_code == 200
        assert (await plain.get("/readyz")).status_code == 503
        assert (await plain.get("/status")).json()["model"] is None
        reply = await plain.post("/v1/completions", json={"model": "tiny", "prompt": "x"})
        assert reply.status_code == 503
        assert reply.json()["error"]["type"] == "server_error"
