"""Two keys at one target: neither sees what the other has asked, and a flood of one does not starve the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import httpx
import pytest
import pytest_asyncio

from protos import generation_pb2 as pb
from protos import target_pb2
from protos.generation_pb2_grpc import GenerationStub
from protos.target_pb2_grpc import TargetStub
from services.gateway.access.keys import new_key
from tests.integration.gateway.conftest import Service, running
from tests.unit.gateway.access.test_keys import record, write

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class Guarded:
    service: Service
    mine: str
    other: str

    async def cached(self, key: str, prompt: str, *, over_grpc: bool) -> int:
        """Prompt tokens that the target found in its cache."""
        if over_grpc:
            async with grpc.aio.insecure_channel(self.service.grpc_address) as channel:
                request = pb.GenerateRequest(model="tiny", text=prompt, sampling=pb.Sampling(max_tokens=2))
                call = GenerationStub(channel).Generate(request, metadata=(("authorization", f"Bearer {key}"),))
                chunks = [chunk async for chunk in call]
            return chunks[-1].usage.cached_prompt_tokens
        async with httpx.AsyncClient(base_url=self.service.url, trust_env=False) as http:
            body = {"model": "tiny", "prompt": prompt, "max_tokens": 2}
            reply = await http.post("/v1/completions", json=body, headers={"authorization": f"Bearer {key}"})
        assert reply.status_code == 200
        found: int = reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guarded(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Guarded]:
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    mine, other = new_key(), new_key()
    write(path, record(mine), record(other))
    async with running(folder, access={"keys_file": str(path)}) as service:
        yield Guarded(service, mine.text, other.text)


@pytest.mark.parametrize("over_grpc", [False, True])
async def test_a_prompt_of_one_key_is_not_found_by_another(guarded: Guarded, over_grpc: bool) -> None:
    prompt = f"{over_grpc}, the launch code is 4711, and nobody else should learn that it has been asked about"
    assert await guarded.cached(guarded.mine, prompt, over_grpc=over_grpc) == 0
    again = await guarded.cached(guarded.mine, prompt, over_grpc=over_grpc)
    assert again >= 32
    assert await guarded.cached(guarded.other, prompt, over_grpc=over_grpc) == 0
    # And by the other door it is the same key.
    assert await guarded.cached(guarded.mine, prompt, over_grpc=not over_grpc) == again


async def test_a_flood_does_not_starve_another_key(guarded: Guarded) -> None:
    """The flood asks for far more than the target can run at a time; the other's answer comes before it ends."""
    flood_ended = 0

    async def flood(stub: GenerationStub, number: int) -> None:
        nonlocal flood_ended
        request = pb.GenerateRequest(
            model="tiny",
            text=f"{number} flood",
            sampling=pb.Sampling(max_tokens=150, ignore_eos=True),
            speculation=pb.Speculation(drafter="none"),
        )
        call = stub.Generate(request, metadata=(("authorization", f"Bearer {guarded.mine}"),))
        async for _ in call:
            pass
        flood_ended += 1

    engine = guarded.service.targets[0].engine
    async with grpc.aio.insecure_channel(guarded.service.grpc_address) as channel:
        stub = GenerationStub(channel)
        flooding = [asyncio.create_task(flood(stub, number)) for number in range(48)]
        while engine.load.num_running < 16 or engine.load.num_waiting < 16:  # noqa: ASYNC110 - the flood has to be there first
            await asyncio.sleep(0.005)
        await guarded.cached(guarded.other, "a short question", over_grpc=True)
        ended_before = flood_ended
        await asyncio.gather(*flooding)
    assert ended_before < 16, "it waited for a whole round of the flood's answers"
    assert engine.load.num_preemptions >= 1


async def test_nobody_reaches_target_or_drafter_beside_the_gateway(guarded: Guarded) -> None:
    async with grpc.aio.insecure_channel(guarded.service.targets[0].address) as channel:
        request = target_pb2.TargetRequest(request_id="r", prompt_ids=[1, 2, 3])
        with pytest.raises(grpc.aio.AioRpcError) as error:
            [chunk async for chunk in TargetStub(channel).Generate(request)]
        assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await TargetStub(channel).GetInfo(target_pb2.GetInfoRequest())
        assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_who_does_not_read_is_ended_and_told(folder: Path) -> None:
    """A target keeps a bounded part of an answer that nobody reads, and its place is free again."""
    async with running(folder) as service:
        target = service.targets[0]
        settings = target.engine.config.model_copy(update={"max_unread_chunks": 16})
        target.engine.config = settings
        pool = service.gateway.targets
        # A small window, or the connection would hold the whole answer.
        options = (
            ("grpc.http2.lookahead_bytes", 16384),
            ("grpc.http2.bdp_probe", 0),
            ("grpc.use_local_subchannel_pool", 1),
        )
        async with grpc.aio.insecure_channel(target.address, options) as channel:
            request = target_pb2.TargetRequest(
                request_id="slow",
                prompt_ids=list(range(32, 64)),
                sampling=pb.Sampling(max_tokens=900, seed=1, logprobs=20, n=8, ignore_eos=True),
                speculation=pb.Speculation(drafter="none"),
            )
            call = TargetStub(channel).Generate(request, metadata=pool._channels.metadata, timeout=60)
            await call.read()
            while target.engine.load.num_running:  # noqa: ASYNC110 - it is ended though nobody reads on
                await asyncio.sleep(0.02)
            with pytest.raises(grpc.aio.AioRpcError) as error:
                [chunk async for chunk in _rest(call)]
        assert error.value.code() is grpc.StatusCode.ABORTED
        assert "read too slowly" in (error.value.details() or "")


async def _rest(call: Any) -> AsyncIterator[pb.GenerateChunk]:
    while (chunk := await call.read()) is not grpc.aio.EOF:
        yield chunk
