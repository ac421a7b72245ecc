"""Asks an OpenAI-compatible endpoint, streamed."""

from __future__ import annotations

import time
from typing import Any

import httpx

from orchestration.bench.endpoints.client import EndpointError, Served, text_hash
from orchestration.bench.endpoints.events import StreamError, read_answer
from orchestration.bench.options import Arm
from orchestration.bench.prompts import Prompt
from orchestration.bench.record import Record

_DESCRIBE_TIMEOUT_S = 10.0
_TOLD = 300  # characters of an error's text that are kept


class OpenAiClient:
    """Every server with /chat/completions or /completions and server-sent events."""

    def __init__(self, arm: Arm, timeout_s: float, api_key: str | None = None) -> None:
        self._arm = arm
        self._model = arm.model
        self._timeout_s = timeout_s
        path = "/chat/completions" if arm.api == "chat" else "/completions"
        self._url = arm.url + path
        self._client = httpx.AsyncClient(
            headers={"authorization": f"Bearer {api_key}"} if api_key else {},
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
            timeout=httpx.Timeout(timeout_s),
            trust_env=False,
        )

    async def describe(self) -> Served:
        url = f"{self._arm.url}/models"
        try:
            reply = await self._client.get(url, timeout=_DESCRIBE_TIMEOUT_S)
            reply.raise_for_status()
            models = {model["id"]: model for model in reply.json()["data"]}
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            raise EndpointError(f"no OpenAI API answers at {self._arm.url} ({_words(error)})") from error
        if not self._model:
            if not models:
                raise EndpointError(f"{url} lists no model; name one with --model")
            self._model = next(iter(models))
        told = models.get(self._model) or {}
        facts = {key: told[key] for key in ("root", "max_model_len") if key in told}
        return Served(self._model, {**facts, **(told.get("draftfleet") or {})})

    async def run(self, prompt: Prompt, due: float) -> Record:
        pieces: list[tuple[float, bytes]] = []
        sent = time.perf_counter()
        error_kind = error_text = ""
        try:
            await self._read(prompt.text, pieces, sent + self._timeout_s)
            ended = time.perf_counter()
            answer = read_answer(pieces)
        except httpx.TimeoutException as error:
            error_kind, error_text = "timeout", _words(error)
        except httpx.ConnectError as error:
            error_kind, error_text = "no connection", _words(error)
        except httpx.HTTPError as error:
            error_kind, error_text = "connection lost", _words(error)
        except StreamError as error:
            error_kind, error_text = error.kind, str(error)
        if error_kind:
            return Record(prompt.name, due, sent, time.perf_counter(), error=error_kind, error_text=error_text[:_TOLD])
        return Record(
            prompt.name,
            due,
            sent,
            ended,
            token_times=answer.token_times,
            burst_times=answer.burst_times,
            prompt_tokens=answer.prompt_tokens,
            cached_prompt_tokens=answer.cached_prompt_tokens,
            are_tokens_told=answer.are_tokens_told,
            speculation=answer.speculation,
            text_hash=text_hash(answer.text),
            finish=answer.finish,
        )

    async def _read(self, text: str, pieces: list[tuple[float, bytes]], deadline: float) -> None:
        """Adds every piece with its arrival."""
        async with self._client.stream("POST", self._url, json=self._body(text)) as reply:
            if reply.status_code != httpx.codes.OK:
                raise StreamError(f"HTTP {reply.status_code}", (await reply.aread()).decode(errors="replace"))
            async for piece in reply.aiter_bytes():
                pieces.append((time.perf_counter(), piece))
                # httpx bounds the wait for each piece; here, the whole answer.
                if pieces[-1][0] > deadline:
                    raise StreamError("timeout", f"the answer takes longer than {self._timeout_s:g} s")

    async def close(self) -> None:
        await self._client.aclose()

    def _body(self, text: str) -> dict[str, Any]:
        arm = self._arm
        prompt = {"messages": [{"role": "user", "content": text}]} if arm.api == "chat" else {"prompt": text}
        body: dict[str, Any] = {
            "model": self._model,
            **prompt,
            "max_tokens": arm.max_tokens,
            "temperature": arm.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        # Beyond the common ground only what was asked for: strict servers refuse what they do not know.
        if arm.top_p != 1:
            body["top_p"] = arm.top_p
        if arm.seed is not None:
            body["seed"] = arm.seed
        if arm.ignore_eos:
            body["ignore_eos"] = True
        asked = {"drafter": arm.drafter, "max_draft_tokens": arm.max_draft_tokens, "force": arm.force or None}
        options = {key: value for key, value in asked.items() if value is not None}
        if options:
            body["draftfleet"] = options
        return body


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
