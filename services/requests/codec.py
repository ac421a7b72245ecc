"""Between the request types and their protobuf messages."""

from __future__ import annotations

from typing import Any, cast

from protos import generation_pb2 as pb
from services.requests.json_schema import ANY_OBJECT
from services.requests.sampling import MAX_BAD_WORDS, SamplingParams, check_count
from services.requests.speculation import Speculation, as_drafter_choice
from services.requests.task import UNKNOWN_TASK, Task, TaskClass

_SCALARS = (
    "max_tokens",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "min_tokens",
    "seed",
    "n",
    "logprobs",
    "prompt_logprobs",
    "ignore_eos",
    "include_stop",
)


def sampling_from_proto(message: pb.Sampling) -> SamplingParams:
    """Absent fields take their defaults. Raises ValueError as SamplingParams does."""
    check_count("bad_words", len(message.bad_words), MAX_BAD_WORDS)  # before each becomes an object
    given = {name: getattr(message, name) for name in _SCALARS if message.HasField(cast(Any, name))}
    return SamplingParams(
        **given,
        logit_bias=dict(message.logit_bias),
        bad_words=tuple(tuple(word.ids) for word in message.bad_words),
        stop=tuple(message.stop),
        stop_token_ids=tuple(message.stop_token_ids),
        response_format=_schema_from_proto(message.response_format) if message.HasField("response_format") else None,
    )


def sampling_to_proto(params: SamplingParams) -> pb.Sampling:
    scalars = {name: value for name in _SCALARS if (value := getattr(params, name)) is not None}
    return pb.Sampling(
        **scalars,
        logit_bias=dict(params.logit_bias),
        bad_words=[pb.TokenIds(ids=word) for word in params.bad_words],
        stop=params.stop,
        stop_token_ids=params.stop_token_ids,
        response_format=_schema_to_proto(params.response_format),
    )


def _schema_to_proto(schema: str | None) -> pb.ResponseFormat | None:
    return None if schema is None else pb.ResponseFormat(json_schema=schema)


def _schema_from_proto(message: pb.ResponseFormat) -> str:
    form = message.WhichOneof("format")
    if form is None:
        raise ValueError("response_format: one of json_object and json_schema is required")
    return ANY_OBJECT if form == "json_object" else message.json_schema


def speculation_from_proto(message: pb.Speculation) -> Speculation:
    """Raises ValueError as Speculation does."""
    limit = message.max_draft_tokens if message.HasField("max_draft_tokens") else None
    return Speculation(as_drafter_choice(message.drafter or "auto"), limit, message.trace, message.force)


def speculation_to_proto(speculation: Speculation) -> pb.Speculation:
    return pb.Speculation(
        drafter=speculation.drafter,
        max_draft_tokens=speculation.max_draft_tokens,
        trace=speculation.trace,
        force=speculation.force,
    )


def task_from_proto(task_class: str, confidence: float) -> Task:
    """Raises ValueError as Task does."""
    return Task(cast(TaskClass, task_class), confidence) if task_class else UNKNOWN_TASK
