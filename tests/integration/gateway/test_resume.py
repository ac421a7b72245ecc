"""A target replica that is lost in the middle of an answer: the client gets the tokens it would have got."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio

from protos import generation_pb2 as pb
from protos.generation_pb2_grpc import GenerationStub
from tests.integration.gateway.conftest import Service, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = "one two three four one two three four one two three"
REQUESTS = {
    "greedy": {"temperature": 0},
    "sampled": {"temperature": 1, "seed": 5, "top_p": 0.95},
    "penalties": {"temperature": 0.8, "seed": 6, "presence_penalty": 0.7, "repetition_penalty": 1.2},
    "stop string": {"temperature": 1, "seed": 9, "stop": ["q z", "zzzz"], "min_tokens": 40},
    "logprobs and choices": {"temperature": 1, "seed": 3, "logprobs": 2, "prompt_logprobs": 1, "n": 3},
}


@pytest_asyncio.fixture(loop_scope="module")
async def service(folder: Path) -> AsyncIterator[Service]:
    async with running(folder, num_targets=2) as ready:
        yield ready


async def answer(service: Service, drafter: str, *, is_losing: bool, **sampling: Any) -> list[dict[str, Any]]:
    """Everything a client can see of every choice, but the statistics of speculation."""
    request = pb.GenerateRequest(
        model="tiny",
        text=PROMPT,
        sampling=pb.Sampling(max_tokens=160, ignore_eos=True, **sampling),
        speculation=pb.Speculation(drafter=drafter),
    )
    choices = [
        {"tokens": [], "text": "", "logprobs": [], "prompt_logprobs": []} for _ in range(request.sampling.n or 1)
    ]
    async with grpc.aio.insecure_channel(service.grpc_address) as channel:
        async for chunk in GenerationStub(channel).Generate(request, timeout=60):
            choice = choices[chunk.choice]
            choice["tokens"] += chunk.token_ids
            choice["text"] += chunk.text
            choice["logprobs"] += [(one.token_id, one.logprob, len(one.top)) for one in chunk.logprobs]
            choice["prompt_logprobs"] += [one.token_id for one in chunk.prompt_logprobs]
            if chunk.finish_reason:
                choice["end"] = (chunk.finish_reason, chunk.stop_reason)
                choice["usage"] = (chunk.usage.prompt_tokens, chunk.usage.completion_tokens)
                choice["exactness"] = chunk.speculation.exactness
            if is_losing and len(choices[0]["tokens"]) >= 5:
                is_losing = False
                (busy,) = [target for target in service.targets if target.engine.load.num_running]
                await busy.stop(0)
    assert not is_losing, "the answer was over before a replica could be lost"
    return choices


@pytest.mark.parametrize("drafter", ["none", "lookup"])
@pytest.mark.parametrize("name", REQUESTS)
async def test_the_answer_is_that_of_a_quiet_run(service: Service, name: str, drafter: str) -> None:
    quiet = await answer(service, drafter, is_losing=False, **REQUESTS[name])
    assert all(choice["tokens"] for choice in quiet)
    lost = await asyncio.wait_for(answer(service, drafter, is_losing=True, **REQUESTS[name]), 60)
    assert lost == quiet
    assert service.gateway.targets.resumes == 1


@pytest.mark.parametrize("name", ["greedy", "sampled", "stop string", "logprobs and choices"])
async def test_a_client_that_was_cut_off_asks_for_the_rest(service: Service, name: str) -> None:
    """Asked twice, it gets the same twice."""
    sampling = {"seed": 4, **REQUESTS[name]}
    quiet = await answer(service, "lookup", is_losing=False, **sampling)
    request = pb.GenerateRequest(
        model="tiny", text=PROMPT, sampling=pb.Sampling(max_tokens=160, ignore_eos=True, **sampling)
    )
    count = request.sampling.n or 1
    tokens: list[list[int]] = [[] for _ in range(count)]
    texts, ended = [""] * count, set[int]()
    async with grpc.aio.insecure_channel(service.grpc_address) as channel:
        stub = GenerationStub(channel)
        call = stub.Generate(request, timeout=60)
        async for chunk in call:
            tokens[chunk.choice] += chunk.token_ids
            texts[chunk.choice] += chunk.text
            if len(tokens[0]) >= 20:
                break
        call.cancel()
        request.resume.extend(pb.Received(choice=at, token_ids=had) for at, had in enumerate(tokens))
        for _ in range(2):
            rest, rest_texts = [list(had) for had in tokens], list(texts)
            async for chunk in stub.Generate(request, timeout=60):
                rest[chunk.choice] += chunk.token_ids
                rest_texts[chunk.choice] += chunk.text
                if chunk.finish_reason:
                    ended.add(chunk.choice)
                    assert chunk.usage.completion_tokens == len(rest[chunk.choice])
            assert rest == [choice["tokens"] for choice in quiet]
            assert rest_texts == [choice["text"] for choice in quiet]
        assert ended == set(range(count))


@pytest.mark.parametrize(
    ("resume", "sampling", "told"),
    [
        ([(0, [1])], {}, "it needs the seed"),
        ([(1, [1])], {"seed": 1}, "choice 1 is out of range"),
        ([(0, [1]), (0, [1])], {"seed": 1}, "choice 0 is named twice"),
        ([(0, [1] * 8)], {"seed": 1}, "8 tokens are too many"),
        ([(0, [1 << 30])], {"seed": 1}, "token id 1073741824 is out of range"),
    ],
)
async def test_what_cannot_have_been_received_is_refused(
    service: Service, resume: list[tuple[int, list[int]]], sampling: dict[str, int], told: str
) -> None:
    request = pb.GenerateRequest(model="tiny", text=PROMPT, sampling=pb.Sampling(max_tokens=8, **sampling))
    request.resume.extend(pb.Received(choice=choice, token_ids=tokens) for choice, tokens in resume)
    async with grpc.aio.insecure_channel(service.grpc_address) as channel:
        with pytest.raises(grpc.aio.AioRpcError, match=told) as caught:
            await anext(aiter(GenerationStub(channel).Generate(request, timeout=60)))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
