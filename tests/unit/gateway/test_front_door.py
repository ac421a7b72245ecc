"""The gRPC door: streams, errors with their details, health, reflection, cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from transformers import PreTrainedTokenizerFast

from protos import generation_pb2 as pb
from protos import target_pb2
from protos.generation_pb2_grpc import GenerationStub
from services.gateway.front_door import FrontDoor
from services.gateway.gateway import Gateway
from tests.unit.gateway.conftest import Setup, opened, until
from tests.unit.gateway.scripted import fail, member

GENERATE = "/draftfleet.v1.Generation/Generate"


async def collect(setup: Setup, request: pb.GenerateRequest, timeout: float | None = 20) -> list[pb.GenerateChunk]:
    return [chunk async for chunk in GenerationStub(setup.channel).Generate(request, timeout=timeout)]


def details(error: grpc.aio.AioRpcError) -> dict[str, object]:
    """By type, from the rich status."""
    data = dict(error.trailing_metadata() or ())["grpc-status-details-bin"]
    status = status_pb2.Status.FromString(data)
    assert status.code == error.code().value[0]
    found = {}
    for packed in status.details:
        for kind in (error_details_pb2.BadRequest, error_details_pb2.RetryInfo, error_details_pb2.ErrorInfo):
            if packed.Is(kind.DESCRIPTOR):
                message = kind()
                packed.Unpack(message)
                found[kind.DESCRIPTOR.name] = message
    return found


async def refused(setup: Setup, request: pb.GenerateRequest) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await collect(setup, request)
    return caught.value


async def test_streams_chunks_with_seed_and_request_id_in_the_first(setup: Setup) -> None:
    chunks = await collect(setup, pb.GenerateRequest(model="default", text="the dog", request_id="mine"))
    assert "".join(chunk.text for chunk in chunks) == "hello world"
    assert [chunk.request_id for chunk in chunks] == ["mine", "", ""]
    sent = setup.target.requests[0]
    assert sent.sampling.HasField("seed")
    assert chunks[0].seed == sent.sampling.seed
    assert chunks[-1].finish_reason == pb.FINISH_REASON_STOP
    assert chunks[-1].speculation.accepted_length == 2.5
    assert chunks[-1].speculation.task_class == setup.target.requests[0].task_class
    assert chunks[-1].speculation.class_confidence == setup.target.requests[0].class_confidence > 1 / 3
    assert sent.request_id != "mine"  # two clients may choose the same


async def test_a_given_seed_is_kept_and_others_differ(setup: Setup) -> None:
    await collect(setup, pb.GenerateRequest(model="tiny", text="a", sampling=pb.Sampling(seed=2**64 - 1)))
    for _ in range(2):
        await collect(setup, pb.GenerateRequest(model="tiny", text="a"))
    seeds = [request.sampling.seed for request in setup.target.requests]
    assert seeds[0] == 2**64 - 1
    assert len(set(seeds)) == 3


@pytest.mark.parametrize("prompt", ["text", "token_ids", "chat"])
async def test_prompt_kinds_become_ids(setup: Setup, tokenizer: PreTrainedTokenizerFast, prompt: str) -> None:
    request = pb.GenerateRequest(model="tiny")
    if prompt == "text":
        request.text, expected = "the dog", "the dog"
    elif prompt == "token_ids":
        expected = "lazy fox"
        request.token_ids.ids.extend(tokenizer(expected)["input_ids"])
    else:
        request.chat.messages.add(role="developer", content="be quick")
        request.chat.messages.add(role="user", content="hi")
        expected = "<|start|>system\nbe quick<|end|>\n<|start|>user\nhi<|end|>\n<|start|>assistant\n"
    await collect(setup, request)
    assert tokenizer.decode(setup.target.requests[0].prompt_ids) == expected


async def test_max_tokens_defaults_to_the_room_in_the_context(setup: Setup) -> None:
    await collect(setup, pb.GenerateRequest(model="tiny", token_ids=pb.TokenIds(ids=[5] * 60)))
    assert setup.target.requests[0].sampling.max_tokens == 4


CASES = {
    "empty text": (pb.GenerateRequest(model="tiny", text=""), "text", "must not be empty"),
    "empty ids": (pb.GenerateRequest(model="tiny", token_ids=pb.TokenIds()), "token_ids.ids", "must not be empty"),
    "empty chat": (pb.GenerateRequest(model="tiny", chat=pb.Chat()), "chat.messages", "must not be empty"),
    "no prompt": (pb.GenerateRequest(model="tiny"), "prompt", "one of text, token_ids and chat"),
    "no model": (pb.GenerateRequest(text="a"), "model", "required"),
    "foreign role": (
        pb.GenerateRequest(model="tiny", chat=pb.Chat(messages=[pb.ChatMessage(role="tool", content="x")])),
        "chat.messages[0].role",
        "must be one of system",
    ),
    "id past the vocabulary": (
        pb.GenerateRequest(model="tiny", token_ids=pb.TokenIds(ids=[5, 400])),
        "token_ids.ids",
        "at most 399",
    ),
    "prompt past the context": (
        pb.GenerateRequest(model="tiny", token_ids=pb.TokenIds(ids=[5] * 64)),
        "token_ids.ids",
        "at most 63 are allowed",
    ),
    "max_tokens past the context": (
        pb.GenerateRequest(model="tiny", token_ids=pb.TokenIds(ids=[5] * 60), sampling=pb.Sampling(max_tokens=5)),
        "sampling.max_tokens",
        "at most 4",
    ),
    "max_tokens past the bound": (
        pb.GenerateRequest(model="tiny", text="a", sampling=pb.Sampling(max_tokens=49)),
        "sampling.max_tokens",
        "at most 48",
    ),
    "negative temperature": (
        pb.GenerateRequest(model="tiny", text="a", sampling=pb.Sampling(temperature=-1)),
        "sampling.temperature",
        "at least 0.0",
    ),
    "bias past the vocabulary": (
        pb.GenerateRequest(model="tiny", text="a", sampling=pb.Sampling(logit_bias={400: 1.0})),
        "sampling.logit_bias",
        "at most 399",
    ),
    "unknown drafter": (
        pb.GenerateRequest(model="tiny", text="a", speculation=pb.Speculation(drafter="eagle")),
        "speculation.drafter",
        "must be one of auto",
    ),
    "too many draft tokens": (
        pb.GenerateRequest(model="tiny", text="a", speculation=pb.Speculation(max_draft_tokens=17)),
        "speculation.max_draft_tokens",
        "at most 16",
    ),
    "no format": (
        pb.GenerateRequest(model="tiny", text="a", sampling=pb.Sampling(response_format=pb.ResponseFormat())),
        "sampling.response_format",
        "one of json_object and json_schema",
    ),
    "schema that is no JSON": (
        pb.GenerateRequest(
            model="tiny", text="a", sampling=pb.Sampling(response_format=pb.ResponseFormat(json_schema="{"))
        ),
        "sampling.response_format",
        "must be valid JSON",
    ),
    "long request id": (pb.GenerateRequest(model="tiny", text="a", request_id="x" * 129), "request_id", "128"),
}


@pytest.mark.parametrize("name", CASES)
async def test_a_mistake_is_told_with_its_field_and_the_service_goes_on(setup: Setup, name: str) -> None:
    request, field, message = CASES[name]
    error = await refused(setup, request)
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert message in (error.details() or "")
    violations = details(error)["BadRequest"].field_violations  # type: ignore[attr-defined]
    assert [violation.field for violation in violations] == [field]
    assert len(await collect(setup, pb.GenerateRequest(model="tiny", text="a"))) == 3


async def test_a_schema_that_the_target_refuses_is_told_with_its_field(setup: Setup) -> None:
    setup.target.script = fail(grpc.StatusCode.INVALID_ARGUMENT, "response_format: it cannot be followed (x)")
    form = pb.ResponseFormat(json_object=pb.JsonObject())
    request = pb.GenerateRequest(model="tiny", text="a", sampling=pb.Sampling(response_format=form))
    error = await refused(setup, request)
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert details(error)["BadRequest"].field_violations[0].field == "sampling.response_format"  # type: ignore[attr-defined]
    assert setup.target.requests[0].sampling.response_format.json_schema == '{"type": "object"}'


async def test_unknown_model_is_not_found(setup: Setup) -> None:
    error = await refused(setup, pb.GenerateRequest(model="other", text="a"))
    assert error.code() == grpc.StatusCode.NOT_FOUND
    assert "'tiny'" in (error.details() or "")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await GenerationStub(setup.channel).GetModel(pb.GetModelRequest(model="other"))
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


async def raw(setup: Setup, data: bytes) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        [chunk async for chunk in setup.channel.unary_stream(GENERATE)(data)]
    return caught.value


async def test_bytes_that_are_no_message_are_the_clients_error(setup: Setup) -> None:
    for data in (b"\xff\xff\xff", b"\x12\x02\xc3\x28"):  # no message; text that is not UTF-8
        error = await raw(setup, data)
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "draftfleet.v1.GenerateRequest" in (error.details() or "")
    assert len(await collect(setup, pb.GenerateRequest(model="tiny", text="a"))) == 3


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (pb.GenerateRequest(model="tiny", text="a").SerializeToString() + b"\xf8\x01\x01", "#31"),
        (pb.GenerateRequest(model="tiny", text="a").SerializeToString() + b"\x2a\x03\xf8\x01\x01", "sampling.#31"),
    ],
)
async def test_fields_of_another_version_are_refused(setup: Setup, data: bytes, field: str) -> None:
    error = await raw(setup, data)
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "draftfleet.v1" in (error.details() or "")
    assert details(error)["BadRequest"].field_violations[0].field == field  # type: ignore[attr-defined]


async def test_too_many_requests_are_refused_with_a_time_to_come_back(tokenizer: PreTrainedTokenizerFast) -> None:
    async with opened(tokenizer, max_concurrent_requests=1, retry_after_s=1.5) as setup:
        may_end = asyncio.Event()

        async def wait(
            request: target_pb2.TargetRequest, context: grpc.aio.ServicerContext
        ) -> AsyncIterator[pb.GenerateChunk]:
            yield pb.GenerateChunk(text="x")
            await may_end.wait()
            async for chunk in fail(grpc.StatusCode.INVALID_ARGUMENT, "n: done")(request, context):
                yield chunk

        setup.target.script = wait
        first = GenerationStub(setup.channel).Generate(pb.GenerateRequest(model="tiny", text="a"))
        assert (await first.read()).text == "x"
        error = await refused(setup, pb.GenerateRequest(model="tiny", text="a"))
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert details(error)["RetryInfo"].retry_delay.ToMilliseconds() == 1500  # type: ignore[attr-defined]
        may_end.set()
        with pytest.raises(grpc.aio.AioRpcError):
            await first.read()
        assert setup.gateway.admission.active == 0


async def test_cancelling_the_call_cancels_the_generation(setup: Setup) -> None:
    async def endless(
        request: target_pb2.TargetRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.GenerateChunk]:
        yield pb.GenerateChunk(text="x")
        await asyncio.Event().wait()

    setup.target.script = endless
    call = GenerationStub(setup.channel).Generate(pb.GenerateRequest(model="tiny", text="a"))
    await call.read()
    call.cancel()
    await asyncio.wait_for(setup.target.was_cancelled.wait(), 10)
    await until(lambda: not setup.gateway.admission.active)


async def test_the_clients_deadline_reaches_the_target(setup: Setup) -> None:
    remaining: list[float | None] = []

    async def endless(
        request: target_pb2.TargetRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.GenerateChunk]:
        remaining.append(context.time_remaining())
        await asyncio.Event().wait()
        yield pb.GenerateChunk()

    setup.target.script = endless
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await collect(setup, pb.GenerateRequest(model="tiny", text="a"), timeout=1.0)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert remaining[0] is not None
    assert remaining[0] < 2.0  # the wire rounds it up a little
    await asyncio.wait_for(setup.target.was_cancelled.wait(), 10)


async def test_the_gateways_own_limit_ends_a_request(tokenizer: PreTrainedTokenizerFast) -> None:
    async with opened(tokenizer, request_timeout_s=0.2) as setup:

        async def endless(
            request: target_pb2.TargetRequest, context: grpc.aio.ServicerContext
        ) -> AsyncIterator[pb.GenerateChunk]:
            yield pb.GenerateChunk(text="x")
            await asyncio.Event().wait()

        setup.target.script = endless
        error = await refused(setup, pb.GenerateRequest(model="tiny", text="a"))
        assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED


async def test_model_info_names_the_drafters_of_the_fleet(setup: Setup) -> None:
    setup.members += [
        member("drafter", f"d{i}", "127.0.0.1:1", kind=kind) for i, kind in enumerate(["mtp", "dfly", "mtp"])
    ]
    info = await GenerationStub(setup.channel).GetModel(pb.GetModelRequest(model="default"))
    assert (info.name, info.max_context, info.exactness) == ("tiny", 64, "bitwise")
    assert list(info.drafters) == ["dfly", "mtp"]


async def health_becomes(setup: Setup, status: int) -> None:
    stub = health_pb2_grpc.HealthStub(setup.channel)
    for service in ("", "draftfleet.v1.Generation"):
        while (await stub.Check(health_pb2.HealthCheckRequest(service=service))).status != status:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_health_follows_the_targets(tokenizer: PreTrainedTokenizerFast) -> None:
    async with opened(tokenizer, health_period_s=0.02) as setup:
        await asyncio.wait_for(health_becomes(setup, health_pb2.HealthCheckResponse.SERVING), 10)
        target = setup.members.pop()
        await asyncio.wait_for(health_becomes(setup, health_pb2.HealthCheckResponse.NOT_SERVING), 10)
        setup.members.append(target)
        await asyncio.wait_for(health_becomes(setup, health_pb2.HealthCheckResponse.SERVING), 10)
        await setup.target.stop()  # still in the fleet view, but it does not answer
        await asyncio.wait_for(health_becomes(setup, health_pb2.HealthCheckResponse.NOT_SERVING), 10)


async def test_reflection_lists_the_service(setup: Setup) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(setup.channel)
    call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
    reply = await call.read()
    names = {service.name for service in reply.list_services_response.service}
    assert {"draftfleet.v1.Generation", "grpc.health.v1.Health"} <= names


async def test_a_taken_port_is_an_error_that_says_so(setup: Setup) -> None:
    port = int(setup.grpc_address.rpartition(":")[2])
    config = setup.gateway.config.model_copy(update={"grpc_port": port})
    second = FrontDoor(Gateway(config, "tiny", setup.gateway.tokenization, setup.gateway.targets))
    with pytest.raises(OSError, match=f"grpc_port: cannot listen on 127.0.0.1:{port}"):
        await second.start()
