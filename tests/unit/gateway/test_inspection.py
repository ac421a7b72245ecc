"""The gRPC methods that answer at once."""

from __future__ import annotations

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from transformers import PreTrainedTokenizerFast

from protos import generation_pb2 as pb
from protos.generation_pb2_grpc import GenerationStub
from tests.unit.gateway.conftest import Setup, opened
from tests.unit.gateway.scripted import member


async def test_text_becomes_the_ids_that_generate_would_use(setup: Setup, tokenizer: PreTrainedTokenizerFast) -> None:
    stub = GenerationStub(setup.channel)
    text = "the dog caf\u00e9 \U0001f600"
    told = await stub.Tokenize(pb.TokenizeRequest(model="tiny", text=text, pieces=True))
    assert list(told.ids) == tokenizer(text)["input_ids"]
    assert b"".join(told.pieces) == text.encode()
    assert told.max_context == 64
    async for _ in stub.Generate(pb.GenerateRequest(model="tiny", text=text)):
        pass
    assert setup.target.requests[0].prompt_ids == told.ids
    back = await stub.Detokenize(pb.DetokenizeRequest(model="default", ids=told.ids))
    assert back.text == text


async def test_a_chat_becomes_ids_up_to_the_answer(setup: Setup) -> None:
    stub = GenerationStub(setup.channel)
    chat = pb.Chat(messages=[pb.ChatMessage(role="developer", content="be quick")])
    told = await stub.Tokenize(pb.TokenizeRequest(model="tiny", chat=chat))
    assert not told.pieces
    back = await stub.Detokenize(pb.DetokenizeRequest(model="tiny", ids=told.ids))
    assert back.text == "<|start|>system\nbe quick<|end|>\n<|start|>assistant\n"


async def test_special_tokens_can_be_left_out(tokenizer: PreTrainedTokenizerFast) -> None:
    from tokenizers.processors import TemplateProcessing

    starting = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    )
    starting.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|start|> $A", special_tokens=[("<|start|>", 0)]
    )
    async with opened(starting) as setup:
        stub = GenerationStub(setup.channel)
        told = await stub.Tokenize(pb.TokenizeRequest(model="tiny", text="the dog"))
        bare = await stub.Tokenize(pb.TokenizeRequest(model="tiny", text="the dog", add_special_tokens=False))
        assert list(told.ids) == [0, *bare.ids]


MISTAKES = [
    ("Tokenize", pb.TokenizeRequest(model="tiny"), "input", "one of text and chat"),
    ("Tokenize", pb.TokenizeRequest(model="tiny", chat=pb.Chat()), "chat.messages", "must not be empty"),
    ("Tokenize", pb.TokenizeRequest(model="tiny", text="x" * 101), "text", "at most 100"),
    ("Detokenize", pb.DetokenizeRequest(model="tiny", ids=[7, 400]), "ids", "at most 399"),
    ("Detokenize", pb.DetokenizeRequest(model="tiny", ids=[7] * 101), "ids", "at most 100"),
]


@pytest.mark.parametrize(("method", "request_", "field", "message"), MISTAKES)
async def test_a_mistake_is_told_with_its_field(
    tokenizer: PreTrainedTokenizerFast, method: str, request_: object, field: str, message: str
) -> None:
    async with opened(tokenizer, max_prompt_characters=100) as setup:
        call = getattr(GenerationStub(setup.channel), method)(request_)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert message in (caught.value.details() or "")
        status = await rpc_status.aio.from_call(call)
        assert status is not None
        bad = error_details_pb2.BadRequest()
        assert any(detail.Unpack(bad) for detail in status.details)
        assert [violation.field for violation in bad.field_violations] == [field]
        assert setup.gateway.admission.active == 0


async def test_unknown_models_and_fields_are_refused(setup: Setup) -> None:
    stub = GenerationStub(setup.channel)
    for call in (
        stub.Tokenize(pb.TokenizeRequest(model="other", text="a")),
        stub.Detokenize(pb.DetokenizeRequest(model="other")),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    for method in ("GetModel", "Tokenize", "Detokenize", "ListDrafters", "GetStatus"):
        for data in (b"\xff\xff", b"\xf8\x01\x01"):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await setup.channel.unary_unary(f"/draftfleet.v1.Generation/{method}")(data)
            assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


async def test_drafters_are_summed_by_kind_and_absent_kinds_told(setup: Setup) -> None:
    setup.members += [
        member("drafter", "d0", "127.0.0.1:1", kind="mtp", sessions=3, capacity=8, queue=1),
        member("drafter", "d1", "127.0.0.1:2", kind="mtp", sessions=2, capacity=8),
        member("drafter", "d2", "127.0.0.1:3", kind="lookup", capacity=4),
    ]
    told = await GenerationStub(setup.channel).ListDrafters(pb.ListDraftersRequest())
    assert list(told.drafters) == [
        pb.DrafterKind(kind="dfly"),
        pb.DrafterKind(kind="lookup", replicas=1, capacity=4),
        pb.DrafterKind(kind="mtp", replicas=2, queue=1, sessions=5, capacity=16),
    ]
    del setup.members[-3:-1]
    told = await GenerationStub(setup.channel).ListDrafters(pb.ListDraftersRequest())
    assert [kind.replicas for kind in told.drafters] == [0, 1, 0]


async def test_status_tells_model_replicas_and_gateway_and_outlives_the_targets(setup: Setup) -> None:
    setup.members.insert(0, member("drafter", "d0", "127.0.0.1:1", kind="mtp", sessions=3, capacity=8))
    stub = GenerationStub(setup.channel)
    told = await stub.GetStatus(pb.GetStatusRequest())
    assert (told.model.name, told.model.exactness, list(told.model.drafters)) == ("tiny", "bitwise", ["mtp"])
    assert [(r.role, r.name, r.kind, r.sessions, r.capacity) for r in told.replicas] == [
        ("drafter", "d0", "mtp", 3, 8),
        ("target", "target-0", "", 0, 16),
    ]
    assert told.replicas[1].address == setup.target.address
    assert told.gateway.active_requests == 0
    setup.members.clear()
    told = await stub.GetStatus(pb.GetStatusRequest())
    assert not told.HasField("model")
    assert not told.replicas
