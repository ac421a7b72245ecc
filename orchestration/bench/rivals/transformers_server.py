"""transformers' generate behind an OpenAI API, one request at a time, so that it is measured as all others are.

python -m orchestration.bench.rivals.transformers_server --model FOLDER --name NAME --port PORT --threads N
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route
from transformers import AutoModelForCausalLM
from transformers.generation.streamers import BaseStreamer

from services.models.tokenizer import Message, chat_ids, eos_ids, load_tokenizer
from services.target.text import Detokenizer


class _Tokens(BaseStreamer):
    """Hands the new tokens of each step to the event loop; several come at once where drafts were accepted."""

    def __init__(self, loop: asyncio.AbstractEventLoop, queue: asyncio.Queue[list[int] | None]) -> None:
        self._loop = loop
        self._queue = queue
        self._is_prompt = True

    def put(self, value: torch.Tensor) -> None:
        if self._is_prompt:  # generate begins with the prompt itself
            self._is_prompt = False
            return
        self._send(value.reshape(-1).tolist())

    def end(self) -> None:
        """`generate` tells it before it returns; the end is sent by whoever runs it, for failures too."""

    def _send(self, tokens: list[int]) -> None:
        self._loop.call_soon_threadsafe(self._queue.put_nowait, tokens)


class _Server:
    def __init__(self, folder: Path, name: str, options: dict[str, Any]) -> None:
        self._model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
        self._tokenizer = load_tokenizer(folder)
        self._eos = sorted(eos_ids(folder, self._tokenizer))
        self._name = name
        self._options = options
        self._turn = threading.Lock()

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/models", self.models),
                Route("/v1/chat/completions", self.answer, methods=["POST"]),
                Route("/v1/completions", self.answer, methods=["POST"]),
            ]
        )

    async def models(self, _: Request) -> JSONResponse:
        return JSONResponse({"data": [{"id": self._name}]})

    async def answer(self, request: Request) -> StreamingResponse:
        return StreamingResponse(self._events(await request.json()), media_type="text/event-stream")

    async def _events(self, body: dict[str, Any]) -> AsyncIterator[bytes]:
        prompt = self._prompt(body)
        queue: asyncio.Queue[list[int] | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        working = loop.run_in_executor(None, self._generate, prompt, body, loop, queue)
        text = Detokenizer(self._tokenizer, prompt)
        count = 0
        while (tokens := await queue.get()) is not None:
            count += len(tokens)
            shown = "".join(text.push(token) for token in tokens)
            if shown:
                yield self._event(body, shown, None)
        await working  # tells what went wrong
        yield self._event(body, text.flush(), "length" if count >= body["max_tokens"] else "stop")
        usage = {"prompt_tokens": len(prompt), "completion_tokens": count}
        yield f"data: {json.dumps({'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n".encode()

    def _prompt(self, body: dict[str, Any]) -> list[int]:
        if "prompt" in body:
            return list(self._tokenizer(body["prompt"])["input_ids"])
        return chat_ids(self._tokenizer, [Message(role=m["role"], content=m["content"]) for m in body["messages"]])

    def _generate(
        self,
        prompt: list[int],
        body: dict[str, Any],
        loop: asyncio.AbstractEventLoop,
        queue: asyncio.Queue[list[int] | None],
    ) -> None:
        ids = torch.tensor([prompt])
        temperature = body.get("temperature", 1.0)
        chosen: dict[str, Any] = {"do_sample": False}
        if temperature > 0:
            chosen = {"do_sample": True, "temperature": temperature, "top_p": body.get("top_p", 1.0), "top_k": 0}
        try:
            with self._turn:
                # An empty list would mean the model's own ends.
                self._model.generation_config.eos_token_id = None if body.get("ignore_eos") else self._eos
                self._model.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    max_new_tokens=body["max_tokens"],
                    streamer=_Tokens(loop, queue),
                    **chosen,
                    **self._options,
                )
        finally:
            loop.call_soon_threadsafe(queue.put_nowait, None)

    def _event(self, body: dict[str, Any], text: str, finish: str | None) -> bytes:
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
        choice |= {"text": text} if "prompt" in body else {"delta": {"content": text}}
        return f"data: {json.dumps({'model': self._name, 'choices': [choice]})}\n\n".encode()


def main(
    model: Annotated[Path, typer.Option(help="Folder in transformers format.")],
    name: Annotated[str, typer.Option(help="That clients ask for.")],
    port: Annotated[int, typer.Option()],
    threads: Annotated[int, typer.Option(min=1)],
    lookup: Annotated[int, typer.Option(min=0, help="Draft tokens of prompt lookup; 0: none.")] = 0,
    assistant: Annotated[Path | None, typer.Option(help="Folder of a smaller model that drafts.")] = None,
) -> None:
    torch.set_num_threads(threads)
    options: dict[str, Any] = {}
    if lookup:
        options["prompt_lookup_num_tokens"] = lookup
    if assistant is not None:
        options["assistant_model"] = AutoModelForCausalLM.from_pretrained(assistant, dtype=torch.bfloat16).eval()
    uvicorn.run(_Server(model, name, options).app(), host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    typer.run(main)
