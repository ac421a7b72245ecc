"""Keys at both doors: who is let in, what the others are told, and what stays open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio
import httpx
import openai
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from transformers import PreTrainedTokenizerFast

from protos import generation_pb2 as pb
from protos.generation_pb2_grpc import GenerationStub
from services.gateway.access.keys import new_key
from tests.unit.gateway.access.test_keys import NOW, record, write
from tests.unit.gateway.conftest import Setup, opened, until
from tests.unit.gateway.scripted import endless
from tests.unit.gateway.test_front_door import details

REQUEST = pb.GenerateRequest(model="tiny", text="a")
BODY = {"model": "tiny", "prompt": "a"}


@dataclass
class Guarded:
    setup: Setup
    path: Path
    good: str
    stub: GenerationStub

    async def grpc_code(self, authorization: str | None, method: str = "Generate") -> grpc.StatusCode:
        metadata = () if authorization is None else (("authorization", authorization),)
        try:
            if method == "GetModel":
                await self.stub.GetModel(pb.GetModelRequest(model="tiny"), metadata=metadata, timeout=20)
            else:
                [chunk async for chunk in self.stub.Generate(REQUEST, metadata=metadata, timeout=20)]
        except grpc.aio.AioRpcError as error:
            return error.code()
        return grpc.StatusCode.OK


@pytest.fixture
async def guarded(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> AsyncIterator[Guarded]:
    path, good = tmp_path / "keys.json", new_key()
    write(path, record(good))
    access = {"keys_file": str(path), "reload_s": 0.01}
    async with opened(tokenizer, access=access) as setup:
        yield Guarded(setup, path, good.text, GenerationStub(setup.channel))


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def post(setup: Setup, path: str = "/v1/completions", **options: object) -> httpx.Response:
    async with httpx.AsyncClient(base_url=setup.url, trust_env=False) as http:
        return await http.post(path, json=BODY, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["Generate", "GetModel"])
async def test_grpc_wants_a_valid_key(guarded: Guarded, method: str) -> None:
    refused = grpc.StatusCode.UNAUTHENTICATED
    for given in (None, "", "Bearer", f"Bearer {new_key().text}", f"Basic {guarded.good}", guarded.good):
        assert await guarded.grpc_code(given, method) is refused
    assert not guarded.setup.target.requests
    for given in (f"Bearer {guarded.good}", f"bearer  {guarded.good}"):
        assert await guarded.grpc_code(given, method) is grpc.StatusCode.OK


async def test_http_wants_a_valid_key(guarded: Guarded) -> None:
    reply = await post(guarded.setup)
    assert reply.status_code == 401
    assert reply.headers["www-authenticate"] == "Bearer"
    told = reply.json()["error"]
    assert (told["type"], told["code"], told["param"]) == ("invalid_request_error", "invalid_api_key", None)
    for headers in (bearer(new_key().text), {"authorization": "Bearer"}, {"authorization": guarded.good}):
        assert (await post(guarded.setup, headers=headers)).status_code == 401
    assert not guarded.setup.target.requests
    assert (await post(guarded.setup, headers=bearer(guarded.good))).status_code == 200


async def test_every_path_is_closed_but_the_probes(guarded: Guarded) -> None:
    async with httpx.AsyncClient(base_url=guarded.setup.url, trust_env=False) as http:
        for path in ("/v1/models", "/v1/models/tiny", "/status", "/no/such/path", "/healthz/", "//healthz", "/page"):
            assert (await http.get(f"{guarded.setup.url}{path}")).status_code == 401, path
        for path in ("/healthz", "/readyz"):
            assert (await http.get(path)).status_code == 200, path
        assert (await http.get("/v1/models", headers=bearer(guarded.good))).status_code == 200


async def test_the_openai_client_understands(guarded: Guarded) -> None:
    async with openai.AsyncOpenAI(base_url=f"{guarded.setup.url}/v1", api_key=guarded.good, max_retries=0) as client:
        stream = await client.completions.create(model="tiny", prompt="a", stream=True)
        assert "".join([event.choices[0].text async for event in stream]) == "hello world"
    async with openai.AsyncOpenAI(base_url=f"{guarded.setup.url}/v1", api_key="none", max_retries=0) as client:
        for stream in (False, True):
            with pytest.raises(openai.AuthenticationError, match="not valid"):
                await client.completions.create(model="tiny", prompt="a", stream=stream)


async def test_health_stays_open_and_reflection_does_not(guarded: Guarded) -> None:
    health = health_pb2_grpc.HealthStub(guarded.setup.channel)
    assert (await health.Check(health_pb2.HealthCheckRequest())).status
    stub = reflection_pb2_grpc.ServerReflectionStub(guarded.setup.channel)
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await stub.ServerReflectionInfo(iter([asked])).read()
    assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
    metadata = (("authorization", f"Bearer {guarded.good}"),)
    reply = await stub.ServerReflectionInfo(iter([asked]), metadata=metadata).read()
    assert reply.list_services_response.service


async def test_reflection_can_be_switched_off(tokenizer: PreTrainedTokenizerFast) -> None:
    async with opened(tokenizer, access={"reflection": False}) as setup:
        stub = reflection_pb2_grpc.ServerReflectionStub(setup.channel)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")])).read()
        assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_keys_come_and_go_without_a_restart(guarded: Guarded) -> None:
    late, old = new_key(), new_key()
    write(guarded.path, record(late), record(old, expires=NOW))
    await asyncio.sleep(0.05)
    assert await guarded.grpc_code(f"Bearer {guarded.good}") is grpc.StatusCode.UNAUTHENTICATED
    assert await guarded.grpc_code(f"Bearer {old.text}") is grpc.StatusCode.UNAUTHENTICATED
    assert await guarded.grpc_code(f"Bearer {late.text}") is grpc.StatusCode.OK


async def test_a_key_past_its_rate_is_told_when_to_come_back(guarded: Guarded) -> None:
    few = new_key()
    write(guarded.path, record(few, requests_per_minute=2))
    await asyncio.sleep(0.05)
    assert (await post(guarded.setup, headers=bearer(few.text))).status_code == 200
    assert await guarded.grpc_code(f"Bearer {few.text}") is grpc.StatusCode.OK
    reply = await post(guarded.setup, headers=bearer(few.text))
    assert reply.status_code == 429
    assert 25 <= int(reply.headers["retry-after"]) <= 30
    assert reply.json()["error"]["code"] == "rate_limit_exceeded"
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await guarded.stub.GetModel(
            pb.GetModelRequest(model="tiny"), metadata=(("authorization", f"Bearer {few.text}"),)
        )
    assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert details(error.value)["RetryInfo"].retry_delay.seconds >= 25  # type: ignore[attr-defined]


async def test_tokens_are_charged_by_both_doors(guarded: Guarded) -> None:
    few = new_key()
    write(guarded.path, record(few, tokens_per_minute=4))
    await asyncio.sleep(0.05)
    assert (await post(guarded.setup, headers=bearer(few.text))).status_code == 200  # 1 for the prompt, 2 written
    assert await guarded.grpc_code(f"Bearer {few.text}") is grpc.StatusCode.OK
    reply = await post(guarded.setup, headers=bearer(few.text))
    assert (reply.status_code, reply.json()["error"]["type"]) == (429, "rate_limit_error")
    assert "4 tokens a minute" in reply.json()["error"]["message"]


async def test_one_key_cannot_take_every_place(guarded: Guarded) -> None:
    one = new_key()
    write(guarded.path, record(one, max_concurrent_requests=1))
    await asyncio.sleep(0.05)
    guarded.setup.target.script = endless
    call = guarded.stub.Generate(REQUEST, metadata=(("authorization", f"Bearer {one.text}"),))
    await call.read()
    assert await guarded.grpc_code(f"Bearer {one.text}") is grpc.StatusCode.RESOURCE_EXHAUSTED
    call.cancel()
    await until(lambda: not guarded.setup.gateway.admission.active)


async def test_large_headers_are_refused_by_both_doors(guarded: Guarded) -> None:
    reply = await post(guarded.setup, headers={**bearer(guarded.good), "x-padding": "a" * 17_000})
    assert (reply.status_code, reply.json()["error"]["code"]) == (431, "headers_too_large")
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await guarded.stub.GetModel(
            pb.GetModelRequest(model="tiny"),
            metadata=(("authorization", f"Bearer {guarded.good}"), ("x-padding", "a" * 17_000)),
        )
    assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_pages_of_others_are_let_in_only_where_named(
    guarded: Guarded, tokenizer: PreTrainedTokenizerFast
) -> None:
    asked = {"origin": "https://chat.example.org", "access-control-request-method": "POST"}
    async with httpx.AsyncClient(trust_env=False) as http:
        reply = await http.options(f"{guarded.setup.url}/v1/completions", headers=asked)
        assert "access-control-allow-origin" not in reply.headers
        access = {"cors_origins": ["https://chat.example.org"], "keys_file": str(guarded.path)}
        async with opened(tokenizer, access=access) as setup:
            reply = await http.options(f"{setup.url}/v1/completions", headers=asked)
            assert reply.status_code == 200
            assert reply.headers["access-control-allow-origin"] == "https://chat.example.org"
            other = {**asked, "origin": "https://evil.example.org"}
            reply = await http.options(f"{setup.url}/v1/completions", headers=other)
            assert "access-control-allow-origin" not in reply.headers
            assert (await http.post(f"{setup.url}/v1/completions", headers=asked, json=BODY)).status_code == 401


async def test_the_caller_of_one_request_is_not_that_of_the_next(guarded: Guarded) -> None:
    """On one connection, with and without a key, one after another and at the same time."""
    async with httpx.AsyncClient(base_url=guarded.setup.url, trust_env=False) as http:
        for _ in range(3):
            assert (await http.post("/v1/completions", json=BODY, headers=bearer(guarded.good))).status_code == 200
            assert (await http.post("/v1/completions", json=BODY)).status_code == 401
    given = [f"Bearer {guarded.good}", None] * 8
    codes = await asyncio.gather(*(guarded.grpc_code(each) for each in given))
    assert codes == [grpc.StatusCode.OK, grpc.StatusCode.UNAUTHENTICATED] * 8
