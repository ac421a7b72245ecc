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
