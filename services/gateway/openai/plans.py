"""From the body of an HTTP request to the answer it will have."""

from __future__ import annotations

import hashlib
import secrets
import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from protos import generation_pb2 as pb
from services.gateway.gateway import Gateway, Job
from services.gateway.gateway import Prompt as GatewayPrompt
from services.gateway.merging import merge
from services.gateway.openai.answers import (
    Answer,
    Body,
    ChatAnswer,
    Collected,
    CompletionAnswer,
    EchoedPrompt,
    Header,
    Streamed,
)
from services.gateway.openai.chats import tools_of, turns
from services.gateway.openai.parsing import parse
from services.gateway.openai.schema import ChatRequest, CompletionRequest
from services.gateway.openai.tally import Tally
from services.gateway.openai.traces import Tracer
from services.gateway.openai.translation import (
    Asked,
    Prompt,
    bad_word_ids,
    bad_word_texts,
    chat,
    check_choices,
    completion,
    prompts_of,
)


@dataclass(frozen=True, slots=True)
class Plan:
    """Checked in full: what is left can fail only at the targets."""

    header: Header
    asked: Asked
    jobs: Sequence[Job]
    answer: Answer
    gateway: Gateway

    async def whole(self) -> Body:
        """The complete body. Raises ApiError."""
        collected = Collected(self.header, self.answer, self._tally(), self._tracer())
        async with aclosing(self._chunks()) as chunks:
            async for choice, chunk in chunks:
                collected.add(choice, chunk)
        return collected.body()

    async def events(self) -> AsyncGenerator[Body, None]:
        """Bodies of the events of a streamed answer. Raises ApiError."""
        streamed = Streamed(self.header, self.answer, self.asked, self._tally(), self._tracer())
        async with aclosing(self._chunks()) as chunks:
            async for choice, chunk in chunks:
                for body in streamed.events(choice, chunk):
                    yield body

    def _tally(self) -> Tally:
        return Tally([job.task for job in self.jobs], self.asked.sampling.n)

    def _tracer(self) -> Tracer:
        return Tracer(self.gateway.tokenization.token_bytes)

    async def _chunks(self) -> AsyncGenerator[tuple[int, pb.GenerateChunk], None]:
        """Choices count over all prompts."""
        streams = [self.gateway.run(job) for job in self.jobs]
        merged: AsyncGenerator[tuple[int, pb.GenerateChunk], None] = merge(streams)
        async with aclosing(merged):
            async for index, chunk in merged:
                yield index * self.asked.sampling.n + chunk.choice, chunk


async def plan_completion(gateway: Gateway, body: bytes) -> Plan:
    """Raises ApiError."""
    request = parse(body, CompletionRequest)
    gateway.check_model(request.model)
    prompts = prompts_of(request)
    asked = await _ready(gateway, completion(request))
    check_choices(len(prompts), asked.sampling.n, gateway.config.max_choices)
    header = await _header(gateway, "cmpl-", request.model)
    jobs, echoed = [], []
    for index, prompt in enumerate(prompts):
        field = "prompt" if len(prompts) == 1 else f"prompt[{index}]"
        given = await gateway.text_prompt(prompt, field) if isinstance(prompt, str) else GatewayPrompt(tuple(prompt))
        jobs.append(await _job(gateway, asked, f"{header.id}-{index}", given, field))
        echoed.append(EchoedPrompt(given.ids, await _text(gateway, prompt) if asked.echo else ""))
    answer = CompletionAnswer(asked, echoed, gateway.tokenization.token_bytes)
    return Plan(header, asked, jobs, answer, gateway)


async def plan_chat(gateway: Gateway, body: bytes) -> Plan:
    """Raises ApiError."""
    request = parse(body, ChatRequest)
    gateway.check_model(request.model)
    asked = await _ready(gateway, chat(request))
    check_choices(1, asked.sampling.n, gateway.config.max_choices)
    header = await _header(gateway, "chatcmpl-", request.model)
    given = await gateway.chat_prompt(turns(request.messages), "messages", tools_of(request.tools, request.tool_choice))
    job = await _job(gateway, asked, header.id, given, "messages")
    return Plan(header, asked, [job], ChatAnswer(asked, given.ids, gateway.tokenization.token_bytes), gateway)


async def _ready(gateway: Gateway, asked: Asked) -> Asked:
    """With the ids of bad words, and one seed for all prompts: each answers as it would alone."""
    sampling = asked.sampling
    if sampling.seed is None:
        sampling = replace(sampling, seed=secrets.randbits(64))
    if asked.bad_words:
        ids = await gateway.tokenization.word_ids(bad_word_texts(asked.bad_words))
        sampling = bad_word_ids(sampling, ids)
    return replace(asked, sampling=sampling)


async def _header(gateway: Gateway, prefix: str, model: str) -> Header:
    info = await gateway.targets.info()
    numerics = "|".join((gateway.model_name, info.precision, info.exactness, info.device))
    fingerprint = f"fp_{hashlib.sha256(numerics.encode()).hexdigest()[:10]}"
    return Header(f"{prefix}{uuid.uuid4().hex}", int(time.time()), model, fingerprint)


async def _job(gateway: Gateway, asked: Asked, request_id: str, prompt: GatewayPrompt, field: str) -> Job:
    return await gateway.job(
        request_id,
        prompt,
        asked.sampling,
        asked.speculation,
        prompt_field=field,
        max_tokens_field=asked.max_tokens_field,
        default_max_tokens=asked.default_max_tokens,
    )


async def _text(gateway: Gateway, prompt: Prompt) -> str:
    return prompt if isinstance(prompt, str) else await gateway.tokenization.text(prompt)
