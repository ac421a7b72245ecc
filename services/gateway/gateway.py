"""What both doors share: checks, limits, seeds, and the stream of chunks."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from protos import generation_pb2 as pb
from services.gateway.access.caller import CALLER
from services.gateway.access.guard import Guard
from services.gateway.access.limits import Limiter
from services.gateway.admission import Admission
from services.gateway.config import GatewayConfig
from services.gateway.errors import ApiError, ErrorKind
from services.gateway.metrics import GatewayMetrics
from services.gateway.targets import TargetCall, TargetPool
from services.gateway.tokenization import Tokenization
from services.models.tokenizer import Message
from services.requests.sampling import SamplingParams
from services.requests.speculation import Speculation
from services.requests.task import Task
from services.router.classifier.classifier import default_classifier

ALIAS = "default"
_TEMPLATE_ROLES = {"developer": "system"}
_CLASSIFIED_IDS = 512  # at each end of a prompt that came as token ids


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids, and the class that the text they came from was taken for."""

    ids: tuple[int, ...]
    task: Task | None = None  # not known yet
    arrived: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class Job:
    """One prompt that has passed every check."""

    request_id: str
    prompt_ids: tuple[int, ...]
    sampling: SamplingParams  # with seed and max_tokens
    speculation: Speculation
    timeout_s: float
    task: Task
    names: Mapping[str, str]  # of the sampling fields, as the client knows them
    arrived: float  # seconds of the monotonic clock
    received: Mapping[int, Sequence[int]]  # tokens that the client has, by choice to go on with


class Gateway:
    """Belongs to one event loop."""

    def __init__(self, config: GatewayConfig, model_name: str, tokenization: Tokenization, targets: TargetPool) -> None:
        self.config = config
        self.model_name = model_name
        self.tokenization = tokenization
        self.targets = targets
        self._classifier = default_classifier()
        self.metrics = GatewayMetrics()
        self.limiter = Limiter(config.retry_after_s)
        self.guard = Guard(config.access, self.limiter)
        self.admission = Admission(config.max_concurrent_requests, config.retry_after_s, self.limiter)

    def check_model(self, name: str) -> None:
        """Raises ApiError for a name that is not served."""
        if name not in (self.model_name, ALIAS):
            raise ApiError(
                ErrorKind.UNKNOWN_MODEL,
                f"model: {name[:128]!r} is not served here; it must be {self.model_name!r} or {ALIAS!r}",
                field="model",
            )

    async def text_ids(self, text: str, field: str, *, add_special: bool = True) -> list[int]:
        """Ids of a text; `add_special`: with those that the model starts with. `field` names it in errors."""
        self._check_characters(len(text), field)
        return await self.tokenization.prompt_ids(text, add_special=add_special)

    async def chat_ids(
        self, messages: Sequence[Message], field: str, tools: Sequence[dict[str, Any]] = ()
    ) -> list[int]:
        """Ids of a chat up to the assistant's turn; `field` names it in errors."""
        extra = [*tools, *(call for m in messages for call in m.get("tool_calls", ()))]
        self._check_characters(sum(len(m["content"]) for m in messages) + sum(len(json.dumps(e)) for e in extra), field)
        # Chat templates know the newer name's older one.
        turns = [m | Message(role=_TEMPLATE_ROLES.get(m["role"], m["role"]), content=m["content"]) for m in messages]
        try:
            return await self.tokenization.chat_ids(turns, tools)
        except ValueError as error:
            raise ApiError.of_value(error, {"messages": field}) from error

    async def text_of(self, ids: Sequence[int], field: str) -> str:
        """Text of token ids, special ones included; `field` names them in errors."""
        if len(ids) > self.config.max_prompt_characters:
            message = (
                f"{field}: {len(ids)} tokens are too many; at most {self.config.max_prompt_characters} are allowed"
            )
            raise ApiError(ErrorKind.INVALID, message, field=field)
        _check_ids(ids, (await self.targets.info()).vocabulary, field)
        return await self.tokenization.text(ids)

    async def text_prompt(self, text: str, field: str) -> Prompt:
        """A plain prompt; `field` names it in errors."""
        arrived = time.monotonic()
        return Prompt(tuple(await self.text_ids(text, field)), self._classifier.of_prompt(text), arrived)

    async def chat_prompt(
        self, messages: Sequence[Message], field: str, tools: Sequence[dict[str, Any]] = ()
    ) -> Prompt:
        """A chat up to the assistant's turn; `field` names it in errors."""
        arrived = time.monotonic()
        task = self._classifier.of_messages([(m["role"], m["content"]) for m in messages])
        return Prompt(tuple(await self.chat_ids(messages, field, tools)), task, arrived)

    async def job(
        self,
        request_id: str,
        prompt: Prompt,
        sampling: SamplingParams,
        speculation: Speculation,
        *,
        prompt_field: str,
        max_tokens_field: str | None = None,
        sampling_prefix: str = "",
        default_max_tokens: int | None = None,
        timeout_s: float | None = None,
        received: Mapping[int, Sequence[int]] | None = None,
    ) -> Job:
        """Checks a prompt against the model, completes max_tokens and the seed.

        `received`: tokens by choice of an answer that is to go on. Raises ApiError, which names
        fields as the client wrote them: `sampling_prefix` stands before those of sampling.
        """
        max_tokens_field = max_tokens_field or f"{sampling_prefix}max_tokens"
        prompt_ids = prompt.ids
        info = await self.targets.info()
        if not prompt_ids:
            raise ApiError(ErrorKind.INVALID, f"{prompt_field}: it must not be empty", field=prompt_field)
        _check_ids(prompt_ids, info.vocabulary, prompt_field)
        room = info.max_context - len(prompt_ids)
        if room < 1:
            raise ApiError(
                ErrorKind.CONTEXT,
                f"{prompt_field}: {len(prompt_ids)} tokens are too many; the context holds {info.max_context} "
                f"with the answer, so at most {info.max_context - 1} are allowed",
                field=prompt_field,
            )
        max_tokens = sampling.max_tokens
        if max_tokens is None:
            max_tokens = min(room, self.config.max_tokens, default_max_tokens or room)
        elif max_tokens > self.config.max_tokens:
            message = (
                f"{max_tokens_field}: {max_tokens} is out of range; "
                f"it must be at least 1 and at most {self.config.max_tokens}"
            )
            raise ApiError(ErrorKind.INVALID, message, field=max_tokens_field)
        elif max_tokens > room:
            raise ApiError(
                ErrorKind.CONTEXT,
                f"{max_tokens_field}: {max_tokens} is out of range; after a prompt of {len(prompt_ids)} tokens "
                f"it must be at least 1 and at most {room}, for the context holds {info.max_context}",
                field=max_tokens_field,
            )
        names = sampling_names(sampling_prefix)
        try:
            sampling.check_vocabulary(info.vocabulary)
            complete = replace(
                sampling,
                max_tokens=max_tokens,
                top_k=min(sampling.top_k, info.vocabulary),
                seed=secrets.randbits(64) if sampling.seed is None else sampling.seed,
            )
        except ValueError as error:
            raise ApiError.of_value(error, names) from error
        limit = self.config.request_timeout_s
        return Job(
            request_id,
            prompt_ids,
            complete,
            speculation,
            limit if timeout_s is None else min(limit, timeout_s),
            prompt.task or await self._task_of_ids(prompt_ids),
            names,
            prompt.arrived,
            _checked(received or {}, sampling, max_tokens, info.vocabulary),
        )

    async def run(self, job: Job) -> AsyncGenerator[pb.GenerateChunk, None]:
        """Chunks of all choices; the first of each tells the seed and the client's request id."""
        assert job.sampling.seed is not None
        caller = CALLER.get()
        call = TargetCall(
            job.prompt_ids,
            job.sampling,
            job.speculation,
            job.timeout_s,
            job.task,
            job.names,
            caller.tenant,
            job.received,
        )
        self.limiter.charge(caller, len(job.prompt_ids))
        begun: set[int] = set()
        with self.metrics.watching(job.task, job.sampling.n, job.arrived) as watch:
            async with aclosing(self.targets.generate(call)) as chunks:
                async for chunk in chunks:
                    self.limiter.charge(caller, len(chunk.token_ids))
                    if chunk.choice in begun:
                        chunk.request_id = ""
                    else:
                        begun.add(chunk.choice)
                        chunk.seed = job.sampling.seed
                        chunk.request_id = job.request_id
                    if chunk.finish_reason:
                        chunk.speculation.task_class = job.task.kind
                        chunk.speculation.class_confidence = job.task.confidence
                    watch.see(chunk)
                    yield chunk

    async def model_info(self) -> pb.ModelInfo:
        """As a target tells it now, with the drafter kinds of the whole fleet. Raises ApiError."""
        info = pb.ModelInfo()
        info.CopyFrom(await self.targets.probe())
        kinds = {*info.drafters, *self.targets.drafter_kinds()}
        info.name = self.model_name
        del info.drafters[:]
        info.drafters.extend(sorted(kinds))
        return info

    async def is_ready(self) -> bool:
        """Whether a target answers now, so that a request would have a full path."""
        try:
            await self.targets.probe()
        except ApiError:
            return False
        return not self.admission.is_draining

    async def _task_of_ids(self, ids: Sequence[int]) -> Task:
        seen = ids if len(ids) <= 2 * _CLASSIFIED_IDS else (*ids[:_CLASSIFIED_IDS], *ids[-_CLASSIFIED_IDS:])
        return self._classifier.of_prompt(await self.tokenization.text(seen))

    def _check_characters(self, count: int, field: str) -> None:
        limit = self.config.max_prompt_characters
        if count > limit:
            raise ApiError(
                ErrorKind.INVALID, f"{field}: {count} characters are too many; at most {limit} are allowed", field=field
            )


def sampling_names(prefix: str) -> dict[str, str]:
    """What clients call the fields of SamplingParams; `prefix` stands before each."""
    return {name: f"{prefix}{name}" for name in SamplingParams.__dataclass_fields__}


def _check_ids(ids: Sequence[int], vocabulary: int, field: str) -> None:
    for token in (min(ids), max(ids)) if ids else ():
        if not 0 <= token < vocabulary:
            message = f"{field}: token id {token} is out of range; it must be at least 0 and at most {vocabulary - 1}"
            raise ApiError(ErrorKind.INVALID, message, field=field)


def _checked(
    received: Mapping[int, Sequence[int]], sampling: SamplingParams, max_tokens: int, vocabulary: int
) -> Mapping[int, Sequence[int]]:
    """Raises ApiError for what cannot have been received of such a request."""
    if received and sampling.seed is None:
        message = "resume: it needs the seed of the answer that is to go on, as its first chunk told it"
        raise ApiError(ErrorKind.INVALID, message, field="resume")
    for choice, tokens in received.items():
        if choice >= sampling.n:
            message = f"resume: choice {choice} is out of range; it must be below n ({sampling.n})"
            raise ApiError(ErrorKind.INVALID, message, field="resume")
        if len(tokens) >= max_tokens:
            message = (
                f"resume: {len(tokens)} tokens are too many; a choice that goes on has fewer than max_tokens "
                f"({max_tokens})"
            )
            raise ApiError(ErrorKind.INVALID, message, field="resume")
        _check_ids(tokens, vocabulary, "resume")
    return received
