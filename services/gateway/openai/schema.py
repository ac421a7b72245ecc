"""The shapes of OpenAI's requests, with our extensions.

Bounds live in SamplingParams and Speculation; here are shapes only. A field that
is null takes its default. Fields that change nothing here are accepted, because
official clients and frameworks send them; fields that would change the answer
and are not there yet are refused by name.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class DraftfleetOptions(_Shape):
    """How to speculate for one request."""

    drafter: str | None = None
    max_draft_tokens: int | None = None
    trace: bool | None = None  # tell of every token where it came from
    force: bool | None = None  # draft that many in every round, and verify all of them


class StreamOptions(_Shape):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None  # no effect


class ResponseFormat(_Shape):
    type: str


class TextPart(_Shape):
    type: Literal["text"]
    text: str


class Message(_Shape):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]
    name: str | None = None  # no effect: chat templates have no place for it
    refusal: None = None  # sent back by clients that repeat an answer
    annotations: list[Any] | None = Field(None, max_length=0)
    audio: None = None
    function_call: None = None
    tool_calls: list[Any] | None = Field(None, max_length=0)

    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class CommonRequest(_Shape):
    model: str
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    # Beyond OpenAI's, by the names that other servers use.
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    min_tokens: int | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    bad_words: list[str] | None = None
    prompt_logprobs: int | None = None
    include_stop_str_in_output: bool | None = None
    draftfleet: DraftfleetOptions | None = None

    # No effect.
    user: str | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: dict[str, Any] | None = None
    prompt_cache_retention: str | None = None

    response_format: ResponseFormat | None = None


class CompletionRequest(CommonRequest):
    """Body of POST /v1/completions."""

    prompt: str | list[str] | list[int] | list[list[int]]
    logprobs: int | None = None
    echo: bool | None = None
    best_of: int | None = None
    suffix: str | None = None


class ChatRequest(CommonRequest):
    """Body of POST /v1/chat/completions."""

    messages: list[Message]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    modalities: list[str] | None = None
    parallel_tool_calls: bool | None = None
    tool_choice: Literal["none", "auto"] | None = None

    # Known, and refused when set.
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    function_call: Any | None = None
    audio: Any | None = None
    prediction: Any | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    moderation: Any | None = None
    web_search_options: Any | None = None
