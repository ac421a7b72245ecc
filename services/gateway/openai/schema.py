"""The shapes of OpenAI's requests, with our extensions.

Bounds live in SamplingParams and Speculation; here are shapes only. A field that
is null takes its default. Three more rules for what we do not have: fields that
could not change an answer are accepted, because official clients and frameworks
send them; fields of OpenAI and vLLM that would change it are refused by name,
unless they hold the value that means "off"; unknown fields are refused with the
nearest known name, for one that is mistyped and ignored is a wrong answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, FailFast, Field

_T = TypeVar("_T")


class _FirstOnly(FailFast):
    __hash__ = object.__hash__  # so that it may stand in a union


# One wrong entry is enough to tell: all of a body's could be a million.
Items = Annotated[list[_T], _FirstOnly()]


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
    continuous_usage_stats: Literal[False] | None = None


class NamedSchema(_Shape):
    """`schema`, which pydantic has another use for, is the JSON Schema itself."""

    name: str | None = None  # no effect
    description: str | None = None  # no effect
    json_schema: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None  # no effect: a schema is always followed


class ResponseFormat(_Shape):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None


class TextPart(_Shape):
    type: Literal["text"]
    text: str


class CalledFunction(_Shape):
    name: str
    arguments: str  # JSON


class ToolCall(_Shape):
    id: str
    type: Literal["function"]
    function: CalledFunction


class Function(_Shape):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None  # JSON Schema
    strict: bool | None = None


class Tool(_Shape):
    type: Literal["function"]
    function: Function


class Message(_Shape):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Items[TextPart] | None = None
    name: str | None = None  # no effect: chat templates have no place for it
    refusal: None = None  # sent back by clients that repeat an answer
    annotations: Items[Any] | None = Field(None, max_length=0)
    audio: None = None
    function_call: None = None
    tool_calls: Items[ToolCall] | None = None
    tool_call_id: str | None = None

    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content or ())


class CommonRequest(_Shape):
    model: str
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    n: int | None = None
    stop: str | Items[str] | None = None
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
    stop_token_ids: Items[int] | None = None
    ignore_eos: bool | None = None
    bad_words: Items[str] | None = None
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

    # vLLM's, refused unless they hold what `OFF` says.
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    use_beam_search: bool | None = None
    length_penalty: float | None = None
    truncate_prompt_tokens: int | None = None
    allowed_token_ids: Items[int] | None = None
    return_tokens_as_token_ids: bool | None = None
    return_token_ids: bool | None = None
    priority: int | None = None


# Values that mean "off", by field; null does for every field.
OFF: Mapping[str, object] = {
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
    "use_beam_search": False,
    "length_penalty": 1.0,
    "truncate_prompt_tokens": None,
    "allowed_token_ids": None,
    "return_tokens_as_token_ids": False,
    "return_token_ids": False,
    "priority": 0,
    "best_of": 1,
    "suffix": "",
    "add_special_tokens": True,
    "modalities": ["text"],
    "functions": [],
    "function_call": "none",
    "audio": None,
    "prediction": None,
    "moderation": None,
    "web_search_options": None,
    "reasoning_effort": None,
    "verbosity": None,
    "add_generation_prompt": True,
    "continue_final_message": False,
    "chat_template": None,
    "chat_template_kwargs": {},
}


class CompletionRequest(CommonRequest):
    """Body of POST /v1/completions."""

    prompt: str | Items[str] | Items[int] | Items[Items[int]]
    logprobs: int | None = None
    echo: bool | None = None

    # Refused unless they hold what `OFF` says.
    best_of: int | None = None
    suffix: str | None = None
    add_special_tokens: bool | None = None


class ChatRequest(CommonRequest):
    """Body of POST /v1/chat/completions."""

    messages: Items[Message]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: Items[Tool] | None = None
    parallel_tool_calls: bool | None = None  # no effect
    tool_choice: Literal["none", "auto"] | None = None

    # Refused unless they hold what `OFF` says.
    modalities: Items[str] | None = None
    functions: Items[Any] | None = None
    function_call: Any | None = None
    audio: Any | None = None
    prediction: Any | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    moderation: Any | None = None
    web_search_options: Any | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class TokenizeRequest(_Shape):
    """Body of POST /tokenize, as vLLM has it: a prompt, or messages."""

    model: str | None = None
    prompt: str | None = None
    messages: Items[Message] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: Literal[True] | None = None
    continue_final_message: Literal[False] | None = None
    return_token_strs: bool | None = None
    tools: Items[Tool] | None = None


class DetokenizeRequest(_Shape):
    """Body of POST /detokenize, as vLLM has it."""

    model: str | None = None
    tokens: Items[int]
