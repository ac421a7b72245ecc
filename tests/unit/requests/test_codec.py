from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protos import generation_pb2 as pb
from protos import target_pb2
from services.requests.codec import (
    sampling_from_proto,
    sampling_to_proto,
    speculation_from_proto,
    speculation_to_proto,
    task_from_proto,
)
from services.requests.json_schema import ANY_OBJECT
from services.requests.sampling import SamplingParams
from services.requests.speculation import Speculation
from services.requests.task import UNKNOWN_TASK, Task

TOKENS = st.integers(0, 2**31 - 1)


def _float(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high, width=32)  # what the messages carry


@st.composite
def all_params(draw: st.DrawFn) -> SamplingParams:
    max_tokens = draw(st.none() | st.integers(1, 2**32 - 1))
    return SamplingParams(
        max_tokens=max_tokens,
        temperature=draw(st.just(0.0) | _float(2**-23, 2.0)),
        top_k=draw(st.integers(0, 2**32 - 1)),
        top_p=draw(_float(2**-20, 1.0)),
        min_p=draw(_float(0.0, 1.0)),
        repetition_penalty=draw(_float(2**-9, 2.0)),
        presence_penalty=draw(_float(-2.0, 2.0)),
        frequency_penalty=draw(_float(-2.0, 2.0)),
        logit_bias=draw(st.dictionaries(TOKENS, _float(-100.0, 100.0), max_size=5)),
        bad_words=draw(st.lists(st.lists(TOKENS, min_size=1, max_size=4).map(tuple), max_size=3).map(tuple)),
        min_tokens=draw(st.integers(0, max_tokens or 2**32 - 1)),
        stop=draw(st.lists(st.text(min_size=1, max_size=20), max_size=3).map(tuple)),
        stop_token_ids=draw(st.lists(TOKENS, max_size=3).map(tuple)),
        seed=draw(st.none() | st.integers(0, 2**64 - 1)),
        n=draw(st.integers(1, 16)),
        logprobs=draw(st.none() | st.integers(0, 20)),
        prompt_logprobs=draw(st.none() | st.integers(0, 20)),
        ignore_eos=draw(st.booleans()),
        include_stop=draw(st.booleans()),
        response_format=draw(st.none() | st.sampled_from([ANY_OBJECT, "{}", '{"enum": ["\u00e9"]}'])),
    )


@given(all_params())
def test_sampling_survives_the_wire(params: SamplingParams) -> None:
    data = sampling_to_proto(params).SerializeToString()
    assert sampling_from_proto(pb.Sampling.FromString(data)) == params


def test_absent_fields_take_their_defaults() -> None:
    assert sampling_from_proto(pb.Sampling()) == SamplingParams()


def test_no_field_is_left_out_of_the_message() -> None:
    assert {field.name for field in fields(SamplingParams)} == {field.name for field in pb.Sampling.DESCRIPTOR.fields}


@pytest.mark.parametrize("name", ["temperature", "repetition_penalty"])
def test_least_values_survive_rounding_to_fp32(name: str) -> None:
    """The gateway checks doubles, the target what the message made of them."""
    least = {"temperature": 1e-7, "repetition_penalty": 0.001}[name]
    sent = sampling_to_proto(SamplingParams(**{name: least}))
    assert math.isclose(getattr(sampling_from_proto(sent), name), least, rel_tol=1e-6)


@given(
    st.builds(
        Speculation,
        st.sampled_from(["auto", "mtp", "dfly", "lookup", "none"]),
        st.none() | st.integers(0, 16),
        st.booleans(),
    )
)
def test_speculation_survives_the_wire(speculation: Speculation) -> None:
    data = speculation_to_proto(speculation).SerializeToString()
    assert speculation_from_proto(pb.Speculation.FromString(data)) == speculation


def test_absent_speculation_is_auto() -> None:
    assert speculation_from_proto(pb.Speculation()) == Speculation()


@given(st.binary(max_size=200))
def test_foreign_messages_give_value_errors_at_worst(data: bytes) -> None:
    try:
        message = pb.Sampling.FromString(data)
    except Exception:  # not a message at all: gRPC answers that itself
        return
    with suppress(ValueError):
        sampling_from_proto(message)


def test_a_task_survives_the_wire() -> None:
    sent = target_pb2.TargetRequest(task_class="maths", class_confidence=0.75)
    assert task_from_proto(sent.task_class, sent.class_confidence) == Task("maths", 0.75)


def test_a_target_that_is_told_no_class_takes_it_as_unknown() -> None:
    nothing = target_pb2.TargetRequest()
    assert task_from_proto(nothing.task_class, nothing.class_confidence) == UNKNOWN_TASK


def test_a_strange_class_is_named() -> None:
    with pytest.raises(ValueError, match="'poem' is not known"):
        task_from_proto("poem", 0.5)


def test_any_object_is_a_schema_too() -> None:
    message = pb.Sampling(response_format=pb.ResponseFormat(json_object=pb.JsonObject()))
    assert sampling_from_proto(message).response_format == ANY_OBJECT
    with pytest.raises(ValueError, match=r"^response_format: one of json_object and json_schema"):
        sampling_from_proto(pb.Sampling(response_format=pb.ResponseFormat()))
