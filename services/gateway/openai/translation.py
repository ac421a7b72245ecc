"""From requests of OpenAI's shape to ours. Pure, apart from the encoder that it is given."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from services.gateway.errors import ApiError, ErrorKind
from services.gateway.openai.schema import OFF, ChatRequest, CommonRequest, CompletionRequest, ResponseFormat
from services.requests.json_schema import ANY_OBJECT
from services.requests.sampling import SamplingParams
from services.requests.speculation import Speculation, as_drafter_choice

COMPLETION_MAX_TOKENS = 16  # OpenAI's default

_COMPLETION_NAMES: Mapping[str, str] = {"include_stop": "include_stop_str_in_output"}
_CHAT_NAMES: Mapping[str, str] = {**_COMPLETION_NAMES, "logprobs": "top_logprobs"}
_DRAFTFLEET_NAMES: Mapping[str, str] = {
    "drafter": "draftfleet.drafter",
    "max_draft_tokens": "draftfleet.max_draft_tokens",
}

Prompt = str | list[int]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks besides its prompts."""

    sampling: SamplingParams  # without bad words: they must be tokenized first
    default_max_tokens: int | None  # where the client gave no max_tokens; None: up to the context
    max_tokens_field: str  # by which the client bounds the answer
    speculation: Speculation
    bad_words: tuple[str, ...]
    stream: bool
    include_usage: bool
    logprobs: int | None  # alternatives for each token in the answer
    prompt_logprobs: bool  # tell them in the answer
    echo: bool


def prompts_of(request: CompletionRequest) -> list[Prompt]:
    """One for each completion. Raises ApiError for an empty one."""
    given = request.prompt
    prompts: list[Prompt]
    if isinstance(given, str):
        prompts = [given]
    elif given and isinstance(given[0], int):
        prompts = [[int(token) for token in given]]
    else:
        prompts = list(given)  # type: ignore[arg-type]
    if not prompts:
        raise ApiError(ErrorKind.INVALID, "prompt: it must not be empty", field="prompt")
    for index, prompt in enumerate(prompts):
        if not prompt:
            where = "prompt" if len(prompts) == 1 else f"prompt[{index}]"
            raise ApiError(ErrorKind.INVALID, f"{where}: it must not be empty", field=where)
    return prompts


def completion(request: CompletionRequest) -> Asked:
    """Raises ApiError naming the field."""
    echo = bool(request.echo)
    prompt_logprobs = request.prompt_logprobs
    if echo and request.logprobs is not None:
        prompt_logprobs = max(request.logprobs, prompt_logprobs or 0)
    return _asked(
        request,
        max_tokens=request.max_tokens,
        default_max_tokens=COMPLETION_MAX_TOKENS,
        logprobs=request.logprobs,
        prompt_logprobs=prompt_logprobs,
        echo=echo,
        names=_COMPLETION_NAMES,
    )


def chat(request: ChatRequest) -> Asked:
    """Raises ApiError naming the field."""
    if not request.messages:
        raise ApiError(ErrorKind.INVALID, "messages: it must not be empty", field="messages")
    if request.top_logprobs is not None and not request.logprobs:
        raise ApiError(ErrorKind.INVALID, "top_logprobs: it needs logprobs to be true", field="top_logprobs")
    max_tokens, names = request.max_tokens, _CHAT_NAMES
    if request.max_completion_tokens is not None:
        if max_tokens is not None:
            raise ApiError(
                ErrorKind.INVALID,
                "max_completion_tokens: give it or max_tokens, not both",
                field="max_completion_tokens",
            )
        max_tokens, names = request.max_completion_tokens, {**_CHAT_NAMES, "max_tokens": "max_completion_tokens"}
    logprobs = (request.top_logprobs or 0) if request.logprobs else None
    return _asked(
        request,
        max_tokens=max_tokens,
        default_max_tokens=None,
        logprobs=logprobs,
        prompt_logprobs=request.prompt_logprobs,
        echo=False,
        names=names,
    )


def _asked(
    request: CommonRequest,
    *,
    max_tokens: int | None,
    default_max_tokens: int | None,
    logprobs: int | None,
    prompt_logprobs: int | None,
    echo: bool,
    names: Mapping[str, str],
) -> Asked:
    for name, off in OFF.items():
        if getattr(request, name, None) not in (None, off):
            raise _unsupported(
                name, "leave it out" if off in (None, [], {}, "") else f"only {json.dumps(off)} is allowed"
            )
    if request.stream_options is not None and not request.stream:
        raise ApiError(ErrorKind.INVALID, "stream_options: it needs stream to be true", field="stream_options")
    if request.top_k is not None and request.top_k == -1:
        top_k: int | None = 0  # how some clients say "off"
    else:
        top_k = request.top_k
    stop = (request.stop,) if isinstance(request.stop, str) else tuple(request.stop or ())
    scalars = {
        "temperature": request.temperature,
        "top_k": top_k,
        "top_p": request.top_p,
        "min_p": request.min_p,
        "repetition_penalty": request.repetition_penalty,
        "presence_penalty": request.presence_penalty,
        "frequency_penalty": request.frequency_penalty,
        "min_tokens": request.min_tokens,
        "n": request.n,
        "ignore_eos": request.ignore_eos,
        "include_stop": request.include_stop_str_in_output,
    }
    try:
        sampling = SamplingParams(
            max_tokens=max_tokens,
            seed=request.seed,
            logprobs=logprobs,
            prompt_logprobs=prompt_logprobs,
            logit_bias=_biases(request.logit_bias or {}),
            stop=stop,
            stop_token_ids=tuple(request.stop_token_ids or ()),
            response_format=_schema(request.response_format),
            **{name: value for name, value in scalars.items() if value is not None},  # type: ignore[arg-type]
        )
    except ValueError as error:
        raise ApiError.of_value(error, names) from error
    options = request.stream_options
    return Asked(
        sampling=sampling,
        default_max_tokens=default_max_tokens,
        max_tokens_field=names.get("max_tokens", "max_tokens"),
        speculation=_speculation(request),
        bad_words=tuple(request.bad_words or ()),
        stream=bool(request.stream),
        include_usage=bool(options and options.include_usage),
        logprobs=logprobs,
        prompt_logprobs=request.prompt_logprobs is not None,
        echo=echo,
    )


def _speculation(request: CommonRequest) -> Speculation:
    options = request.draftfleet
    if options is None:
        return Speculation()
    drafter = "auto" if options.drafter is None else options.drafter
    try:
        return Speculation(
            as_drafter_choice(drafter), options.max_draft_tokens, bool(options.trace), bool(options.force)
        )
    except ValueError as error:
        raise ApiError.of_value(error, _DRAFTFLEET_NAMES) from error


def _schema(form: ResponseFormat | None) -> str | None:
    if form is None or form.type == "text":
        return None
    if form.type == "json_object":
        return ANY_OBJECT
    if form.json_schema is None:
        message = "response_format.json_schema: this field is required"
        raise ApiError(ErrorKind.INVALID, message, field="response_format.json_schema")
    # The order of properties is the order in which they will be written.
    return json.dumps(form.json_schema.json_schema, ensure_ascii=False)


def _biases(given: Mapping[str, float]) -> dict[int, float]:
    biases: dict[int, float] = {}
    for token, bias in given.items():
        if not (token.isascii() and token.isdigit()):
            raise ApiError(
                ErrorKind.INVALID,
                f"logit_bias: {token[:32]!r} is not a token id; keys must be token ids",
                field="logit_bias",
            )
        biases[int(token)] = bias
    return biases


def bad_word_texts(words: Sequence[str]) -> list[str]:
    """What to tokenize of each word: as the start of a text, and after a space.

    Raises ApiError for an empty word.
    """
    texts = []
    for index, word in enumerate(words):
        bare = word.strip()
        if not bare:
            where = f"bad_words[{index}]"
            raise ApiError(ErrorKind.INVALID, f"{where}: it must not be empty", field=where)
        texts += [bare, f" {bare}"]
    return texts


def bad_word_ids(sampling: SamplingParams, ids: Sequence[Sequence[int]]) -> SamplingParams:
    """With these token sequences as bad words, each once. Raises ApiError when they are too many."""
    try:
        return replace(sampling, bad_words=tuple(dict.fromkeys(tuple(word) for word in ids)))
    except ValueError as error:
        raise ApiError.of_value(error) from error


def check_choices(num_prompts: int, n: int, limit: int) -> None:
    """Raises ApiError when a request asks for too many choices."""
    if num_prompts * n > limit:
        raise ApiError(
            ErrorKind.INVALID,
            f"n: {num_prompts} prompts with {n} choices each are too many; at most {limit} choices are allowed",
            field="n",
        )


def _unsupported(field: str, allowed: str) -> ApiError:
    return ApiError(ErrorKind.UNSUPPORTED, f"{field}: not supported yet; {allowed}", field=field)
