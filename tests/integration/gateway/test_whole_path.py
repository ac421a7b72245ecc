"""Real answers by both doors: the drafter changes nothing, and nothing that fails beside the target does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import httpx
import openai
import pytest
import pytest_asyncio

from protos import generation_pb2 as pb
from protos.generation_pb2_grpc import GenerationStub
from tests.integration.gateway.conftest import Service, running
from tests.unit.gateway.conftest import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

REPEATING = "one two three four one two three four one two three four one two"
PLAIN = {"drafter": "none"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(folder: Path) -> AsyncIterator[Service]:
    async with running(folder) as ready:
        yield ready


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(service: Service) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{service.url}/v1", api_key="none", max_retries=0, timeout=60) as ready:
        yield ready


async def ask(client: openai.AsyncOpenAI, drafter: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    answer = await client.completions.create(
        **{"model": "tiny", "prompt": REPEATING, "max_tokens": 60, "temperature": 0, **fields},
        extra_body={"draftfleet": {"drafter": drafter}},
    )
    return answer.choices[0].text, (answer.model_extra or {})["draftfleet"]


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1, "seed": 5, "top_p": 0.9}])
async def test_a_leased_drafter_drafts_and_changes_nothing(
    service: Service, client: openai.AsyncOpenAI, sampling: dict[str, Any]
) -> None:
    plain, told = await ask(client, "none", **sampling)
    assert (told["drafter"], told["num_drafts"]) == ("none", 0)
    drafted, told = await ask(client, "lookup", **sampling)
    assert told["num_draft_tokens"] >= told["num_accepted_tokens"]
    if told["exactness"] == "bitwise":
        assert drafted == plain
    if not sampling["temperature"]:  # a random model falls into loops, which lookup sees
        assert told["drafter"] == "lookup"
        assert told["num_drafts"] > 0


async def test_the_trace_tells_where_each_token_came_from(client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(
        model="tiny",
        prompt=REPEATING,
        max_tokens=60,
        temperature=0,
        extra_body={"draftfleet": {"drafter": "lookup", "trace": True}},
    )
    told = (answer.model_extra or {})["draftfleet"]
    (trace,) = told["traces"]
    tokens = trace["tokens"]
    assert len(tokens) == 60
    assert "".join(token["text"] for token in tokens) == answer.choices[0].text
    assert sum(token["origin"] == "accepted" for token in tokens) == told["num_accepted_tokens"]
    assert sum(bool(token["rejected"]) for token in tokens) > 0  # a random model repeats itself badly
    assert {token["drafter"] for token in tokens if token["origin"] == "plain"} == {""}
    assert {token["drafter"] for token in tokens if token["origin"] != "plain"} == {"lookup"}
    assert [token["time"] for token in tokens] == sorted(token["time"] for token in tokens)


async def test_the_status_tells_what_was_drafted(service: Service, client: openai.AsyncOpenAI) -> None:
    await ask(client, "lookup")
    async with httpx.AsyncClient(trust_env=False) as http:
        told = (await http.get(f"{service.url}/status")).json()["dcut"]
    assert {target["replica"] for target in told} == {member.replica for member in service.gateway.targets.targets()}
    assert all(target["mode"] == "off" and target["lines"] for target in told)
    assert sum(target["counters"]["kept_tokens"] for target in told) > 0
    assert any(entry["kind"] == "lookup" for target in told for entry in target["acceptance"])


async def test_an_asked_kind_without_a_replica_is_replaced_and_the_answer_says_so(client: openai.AsyncOpenAI) -> None:
    _, told = await ask(client, "mtp", max_tokens=150)  # the lease must come before the end
    assert (told["requested_drafter"], told["drafter"]) == ("mtp", "lookup")
    _, told = await ask(client, "auto")
    assert (told["requested_drafter"], told["drafter"]) == ("auto", "lookup")


async def test_streamed_and_whole_answers_agree_by_both_doors(service: Service, client: openai.AsyncOpenAI) -> None:
    whole, _ = await ask(client, "auto")
    stream = await client.completions.create(model="tiny", prompt=REPEATING, max_tokens=60, temperature=0, stream=True)
    assert "".join([event.choices[0].text async for event in stream]) == whole
    async with grpc.aio.insecure_channel(service.grpc_address) as channel:
        request = pb.GenerateRequest(
            model="default", text=REPEATING, sampling=pb.Sampling(max_tokens=60, temperature=0), request_id="mine"
        )
        chunks = [chunk async for chunk in GenerationStub(channel).Generate(request)]
        assert "".join(chunk.text for chunk in chunks) == whole
        assert chunks[0].request_id == "mine"
        assert sum(len(chunk.token_ids) for chunk in chunks) == chunks[-1].usage.completion_tokens
        info = await GenerationStub(channel).GetModel(pb.GetModelRequest(model="tiny"))
        assert list(info.drafters) == ["lookup"]


async def test_choices_and_prompts_answer_as_each_would_alone(client: openai.AsyncOpenAI) -> None:
    fields: dict[str, Any] = {"model": "tiny", "max_tokens": 12, "seed": 3, "n": 2}
    together = await client.completions.create(prompt=["a b c", "d e f"], **fields)
    alone = [await client.completions.create(prompt=prompt, **fields) for prompt in ("a b c", "d e f")]
    assert [c.text for c in together.choices] == [c.text for answer in alone for c in answer.choices]
    assert alone[0].choices[0].text != alone[0].choices[1].text


async def test_an_unseeded_answer_can_be_had_again_by_the_seed_it_tells(client: openai.AsyncOpenAI) -> None:
    first, told = await ask(client, "auto", temperature=1, max_tokens=20)
    again, _ = await ask(client, "none", temperature=1, max_tokens=20, seed=told["seed"])
    assert again == first
    other, _ = await ask(client, "none", temperature=1, max_tokens=20)
    assert other != first


async def test_logprobs_and_echo_add_up(client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(
        model="tiny", prompt="to be", max_tokens=8, temperature=0, echo=True, logprobs=2, n=2
    )
    for choice in answer.choices:
        logprobs = choice.logprobs
        assert logprobs is not None
        assert logprobs.tokens is not None
        assert logprobs.token_logprobs is not None
        assert logprobs.top_logprobs is not None
        num_prompt = len(logprobs.tokens) - 8
        assert "".join(logprobs.tokens[:num_prompt]) == "to be"
        assert choice.text.startswith("to be")
        assert logprobs.token_logprobs[0] is None
        assert all(value is not None and value <= 0 for value in logprobs.token_logprobs[1:])
        for told, alternatives in zip(
            logprobs.token_logprobs[num_prompt:], logprobs.top_logprobs[num_prompt:], strict=True
        ):
            assert told == max(alternatives.values())  # greedy
            assert len(alternatives) == 2


async def test_chat_with_a_stop_string(client: openai.AsyncOpenAI) -> None:
    fields: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "temperature": 0}
    free = (await client.chat.completions.create(max_tokens=30, **fields)).choices[0]
    assert free.message.content
    stop = free.message.content[5:8]
    ended = (await client.chat.completions.create(max_tokens=30, stop=stop, **fields)).choices[0]
    assert ended.message.content == free.message.content[: free.message.content.index(stop)]
    assert (ended.finish_reason, (ended.model_extra or {})["stop_reason"]) == ("stop", stop)


async def test_many_at_once_answer_as_one(client: openai.AsyncOpenAI) -> None:
    prompts = [f"{REPEATING} {number}" for number in range(12)]
    alone = [await ask(client, "none", prompt=prompt, max_tokens=16) for prompt in prompts]
    together = await asyncio.gather(*(ask(client, "auto", prompt=prompt, max_tokens=16) for prompt in prompts))
    if alone[0][1]["exactness"] == "bitwise":
        assert [text for text, _ in together] == [text for text, _ in alone]


async def test_a_client_that_goes_away_leaves_nothing_behind(service: Service) -> None:
    body = {"model": "tiny", "prompt": "x", "max_tokens": 900, "ignore_eos": True, "stream": True}
    async with httpx.AsyncClient() as plain:
        async with plain.stream("POST", f"{service.url}/v1/completions", json=body) as reply:
            await anext(reply.aiter_bytes())
        await until(lambda: service.targets[0].engine.load.num_running == 0)
        await until(lambda: service.drafter.num_sessions + service.drafter.num_reserved == 0)
    assert service.gateway.admission.active == 0


async def test_the_death_of_the_drafter_is_not_seen_in_the_answer(folder: Path) -> None:
    async with (
        running(folder) as service,
        openai.AsyncOpenAI(base_url=f"{service.url}/v1", api_key="none", max_retries=0, timeout=60) as client,
    ):
        plain, told = await ask(client, "none", max_tokens=300)
        stream = await client.completions.create(
            model="tiny", prompt=REPEATING, max_tokens=300, temperature=0, stream=True
        )
        text = ""
        async for event in stream:
            if not text:
                await service.drafter.stop()
            text += event.choices[0].text
        if told["exactness"] == "bitwise":
            assert text == plain
        _, told = await ask(client, "lookup", max_tokens=5)
        assert told["drafter"] == "none"


async def test_a_dead_target_is_replaced_by_the_other(folder: Path) -> None:
    async with (
        running(folder, num_targets=2) as service,
        openai.AsyncOpenAI(base_url=f"{service.url}/v1", api_key="none", max_retries=0, timeout=60) as client,
    ):
        await service.targets[0].stop()  # it goes on reporting, as one whose server hangs
        answers = await asyncio.gather(*(ask(client, "auto", max_tokens=4) for _ in range(6)))
        assert len({text for text, _ in answers}) == 1


@pytest.mark.parametrize("ends_by", ["cancel", "deadline"])
async def test_a_grpc_call_that_ends_early_leaves_no_session_anywhere(service: Service, ends_by: str) -> None:
    sampling = pb.Sampling(max_tokens=900, temperature=0, ignore_eos=True, n=8)
    request = pb.GenerateRequest(
        model="tiny", text=REPEATING, sampling=sampling, speculation=pb.Speculation(drafter="lookup")
    )
    async with grpc.aio.insecure_channel(service.grpc_address) as channel:
        call = GenerationStub(channel).Generate(request, timeout=1.0 if ends_by == "deadline" else None)
        if ends_by == "cancel":
            await call.read()
            await until(lambda: service.drafter.num_sessions == 8)
            call.cancel()
        else:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                [chunk async for chunk in call]
            assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: service.targets[0].engine.load.num_running == 0)
        await until(lambda: service.drafter.num_sessions + service.drafter.num_reserved == 0)
        await until(lambda: service.gateway.admission.active == 0)
