"""Answers in OpenAI's shapes, whole and streamed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from protos import generation_pb2 as pb
from services.gateway.openai.logprobs import (
    CompletionLogprobs,
    TokenBytesOf,
    chat_logprobs,
    joined,
    prompt_logprobs,
)
from services.gateway.openai.tally import Tally
from services.gateway.openai.traces import Trace, Tracer
from services.gateway.openai.traces import joined as joined_traces
from services.gateway.openai.translation import Asked

Body = dict[str, Any]

_FINISH: Mapping[int, str] = {
    pb.FINISH_REASON_STOP: "stop",
    pb.FINISH_REASON_LENGTH: "length",
    pb.FINISH_REASON_ABORT: "abort",
}


@dataclass(frozen=True, slots=True)
class Header:
    """What every body and every streamed chunk of one answer repeats."""

    id: str
    created: int  # seconds since the epoch
    model: str
    fingerprint: str

    def body(self, kind: str) -> Body:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }


@dataclass(frozen=True, slots=True)
class EchoedPrompt:
    """The prompt of a completion, which may be part of the answer."""

    ids: tuple[int, ...]
    text: str  # empty unless it is echoed


class CompletionAnswer:
    """For /v1/completions. Choices count over all prompts."""

    kind = chunk_kind = "text_completion"

    def __init__(self, asked: Asked, prompts: Sequence[EchoedPrompt], token_bytes: TokenBytesOf) -> None:
        self._asked = asked
        self._prompts = prompts
        self._token_bytes = token_bytes
        self._logprobs: dict[int, CompletionLogprobs] = {}
        self._prompt_entries: dict[int, list[pb.TokenLogprobs]] = {}

    def delta(self, choice: int, chunk: pb.GenerateChunk) -> Iterator[Body]:
        """What a chunk adds to a choice; nothing where it tells nothing new."""
        index = choice // self._asked.sampling.n
        prompt = self._prompts[index]
        is_first = choice not in self._logprobs
        builder = self._logprobs.setdefault(choice, CompletionLogprobs(self._asked.logprobs or 0, self._token_bytes))
        if chunk.prompt_logprobs:
            self._prompt_entries[index] = list(chunk.prompt_logprobs)
        entries = self._prompt_entries.get(index, [])
        text, logprobs = chunk.text, None
        if self._asked.logprobs is not None:
            logprobs = builder.prompt(prompt.ids, entries) if is_first and self._asked.echo else None
            told = builder.tokens(chunk.logprobs)
            logprobs = told if logprobs is None else joined(logprobs, told)
        if is_first and self._asked.echo:
            text = prompt.text + text
        finish = _FINISH.get(chunk.finish_reason)
        extra: dict[str, Any] = {}
        if is_first and self._asked.prompt_logprobs:
            extra["prompt_logprobs"] = prompt_logprobs(prompt.ids, entries, self._token_bytes)
        if text or finish or extra or (logprobs and logprobs["tokens"]):
            yield {
                "index": choice,
                "text": text,
                "logprobs": logprobs,
                "finish_reason": finish,
                "stop_reason": chunk.stop_reason or None,
                **extra,
            }

    def whole(self, deltas: Sequence[Body]) -> Body:
        """One choice from all its deltas."""
        choice = dict(deltas[0])
        for delta in deltas[1:]:
            choice["text"] += delta["text"]
            if choice["logprobs"] is not None:
                choice["logprobs"] = joined(choice["logprobs"], delta["logprobs"])
        choice["finish_reason"] = deltas[-1]["finish_reason"]
        choice["stop_reason"] = deltas[-1]["stop_reason"]
        return choice


class ChatAnswer:
    """For /v1/chat/completions."""

    kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"

    def __init__(self, asked: Asked, prompt_ids: tuple[int, ...], token_bytes: TokenBytesOf) -> None:
        self._asked = asked
        self._prompt_ids = prompt_ids
        self._token_bytes = token_bytes
        self._begun: set[int] = set()

    def delta(self, choice: int, chunk: pb.GenerateChunk) -> Iterator[Body]:
        """What a chunk adds to a choice: first its role, then content, at last why it ended."""
        if choice not in self._begun:
            self._begun.add(choice)
            extra: dict[str, Any] = {}
            if self._asked.prompt_logprobs:
                extra["prompt_logprobs"] = prompt_logprobs(self._prompt_ids, chunk.prompt_logprobs, self._token_bytes)
            yield self._choice(choice, {"role": "assistant", "content": ""}, extra=extra)
        logprobs = None
        if self._asked.logprobs is not None and chunk.logprobs:
            logprobs = chat_logprobs(chunk.logprobs, self._asked.logprobs, self._token_bytes)
        if chunk.text or logprobs:
            yield self._choice(choice, {"content": chunk.text}, logprobs=logprobs)
        if chunk.finish_reason:
            yield self._choice(choice, {}, finish=_FINISH[chunk.finish_reason], stop=chunk.stop_reason or None)

    def whole(self, deltas: Sequence[Body]) -> Body:
        """One choice from all its deltas."""
        logprobs = None
        if self._asked.logprobs is not None:
            told = [entry for d in deltas if d["logprobs"] for entry in d["logprobs"]["content"]]
            logprobs = {"content": told, "refusal": None}
        content = "".join(d["delta"].get("content", "") for d in deltas)
        choice = {
            "index": deltas[0]["index"],
            "message": {"role": "assistant", "content": content, "refusal": None},
            "logprobs": logprobs,
            "finish_reason": deltas[-1]["finish_reason"],
            "stop_reason": deltas[-1]["stop_reason"],
        }
        if "prompt_logprobs" in deltas[0]:
            choice["prompt_logprobs"] = deltas[0]["prompt_logprobs"]
        return choice

    @staticmethod
    def _choice(
        index: int,
        delta: dict[str, Any],
        *,
        logprobs: dict[str, Any] | None = None,
        finish: str | None = None,
        stop: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Body:
        return {
            "index": index,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": finish,
            "stop_reason": stop,
            **(extra or {}),
        }


Answer = CompletionAnswer | ChatAnswer


class Streamed:
    """The bodies of a streamed answer's events."""

    def __init__(self, header: Header, answer: Answer, asked: Asked, tally: Tally, tracer: Tracer) -> None:
        self._header = header
        self._answer = answer
        self._asked = asked
        self._tally = tally
        self._tracer = tracer
        self._is_first = True

    def events(self, choice: int, chunk: pb.GenerateChunk) -> Iterator[Body]:
        """The first event tells the seed and the class, the very last one what speculation did."""
        self._tally.add(choice, chunk)
        choices = list(self._answer.delta(choice, chunk))
        bodies = [self._body([delta]) for delta in choices]
        trace = self._tracer.trace(choice, chunk)
        if trace is not None:
            bodies = bodies or [self._body([])]  # tokens whose text is still held back
            _extend(bodies[0], {"traces": [trace]})
        if self._is_first and bodies:
            self._is_first = False
            _extend(bodies[0], self._tally.opening())
        if chunk.finish_reason and self._tally.is_complete:
            if self._asked.include_usage:
                bodies.append({**self._body([]), "usage": self._tally.usage()})
            _extend(bodies[-1], self._tally.draftfleet())
        yield from bodies

    def _body(self, choices: list[Body]) -> Body:
        body = {**self._header.body(self._answer.chunk_kind), "choices": choices}
        if self._asked.include_usage:
            body["usage"] = None
        return body


class Collected:
    """The body of an answer that is sent whole."""

    def __init__(self, header: Header, answer: Answer, tally: Tally, tracer: Tracer) -> None:
        self._header = header
        self._answer = answer
        self._tally = tally
        self._tracer = tracer
        self._traces: list[Trace] = []
        self._deltas: dict[int, list[Body]] = {}

    def add(self, choice: int, chunk: pb.GenerateChunk) -> None:
        self._tally.add(choice, chunk)
        self._deltas.setdefault(choice, []).extend(self._answer.delta(choice, chunk))
        trace = self._tracer.trace(choice, chunk)
        if trace is not None:
            self._traces.append(trace)

    def body(self) -> Body:
        traces = {"traces": joined_traces(self._traces)} if self._traces else {}
        return {
            **self._header.body(self._answer.kind),
            "choices": [self._answer.whole(self._deltas[choice]) for choice in sorted(self._deltas)],
            "usage": self._tally.usage(),
            "draftfleet": {**self._tally.draftfleet(), **traces},
        }


def _extend(body: Body, told: Body) -> None:
    body["draftfleet"] = {**body.get("draftfleet", {}), **told}
