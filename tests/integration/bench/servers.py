"""Small real servers that stream what the test wrote, over HTTP and gRPC."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import grpc.aio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from orchestration.ports import free_ports
from protos import generation_pb2 as pb
from protos.generation_pb2_grpc import GenerationServicer, add_GenerationServicer_to_server

PAUSE_S = 0.01
# Three messages with four tokens of text: the second brings two.
TEXTS, NUM_TOKENS = ("a", "bc", "d"), 4
_START_TIMEOUT_S = 20.0


class HttpDoubles:
    """Streams TEXTS with a pause between; a prompt that names a fault gets that fault."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/models", self.models),
                Route("/v1/chat/completions", self.answer, methods=["POST"]),
                Route("/v1/completions", self.answer, methods=["POST"]),
            ]
        )

    async def models(self, _: Request) -> Response:
        return JSONResponse({"data": [{"id": "double", "max_model_len": 512, "permission": []}]})

    async def answer(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        prompt = body["prompt"] if "prompt" in body else body["messages"][-1]["content"]
        if "<refuse>" in prompt:
            return JSONResponse({"error": {"message": "too many"}}, status_code=429)
        return StreamingResponse(self._events(prompt, "prompt" in body), media_type="text/event-stream")

    async def _events(self, prompt: str, is_completion: bool) -> AsyncIterator[bytes]:
        for text in TEXTS:
            yield _event({"choices": [{"index": 0, "text": text} if is_completion else {"delta": {"content": text}}]})
            if "<hang>" in prompt:
                await asyncio.sleep(_START_TIMEOUT_S)
            await asyncio.sleep(PAUSE_S)
            if "<cut>" in prompt:
                return
            if "<fail>" in prompt:
                yield _event({"error": {"code": "internal_error", "message": "broken"}})
                return
        # The end comes in one piece, as from servers that write quickly.
        yield (
            _event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
            + _event({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": NUM_TOKENS}})
            + b"data: [DONE]\n\n"
        )


@contextmanager
def serving_http(doubles: HttpDoubles) -> Iterator[str]:
    """The base of its API. It runs in a thread, so that the load has an event loop of its own."""
    (port,) = free_ports(1)
    server = uvicorn.Server(
        uvicorn.Config(doubles.app(), host="127.0.0.1", port=port, log_level="error", lifespan="off")
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not server.started:
            assert time.monotonic() < deadline, "the double did not start"
            time.sleep(0.01)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = server.force_exit = True
        thread.join()


class GrpcDouble(GenerationServicer):
    """Streams TEXTS; tokens as told, stamped."""

    def __init__(self) -> None:
        self.requests: list[pb.GenerateRequest] = []

    async def GetModel(self, request: pb.GetModelRequest, context: Any) -> pb.ModelInfo:
        if request.model != "default":
            await context.abort(grpc.StatusCode.NOT_FOUND, f"model: {request.model!r} is not served")
        return pb.ModelInfo(name="double", exactness="bitwise", device="cpu", precision="bf16", max_context=512)

    async def Generate(self, request: pb.GenerateRequest, context: Any) -> AsyncIterator[pb.GenerateChunk]:
        self.requests.append(request)
        prompt = request.chat.messages[0].content if request.HasField("chat") else request.text
        if "<refuse>" in prompt:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many")
        for index, text in enumerate(TEXTS):
            yield pb.GenerateChunk(text=text, token_ids=[1] * len(text), token_times=[time.time()] * len(text))
            await asyncio.sleep(PAUSE_S)
            if "<cut>" in prompt and index:
                return
        yield pb.GenerateChunk(
            finish_reason=pb.FINISH_REASON_LENGTH,
            usage=pb.Usage(prompt_tokens=9, cached_prompt_tokens=3, completion_tokens=NUM_TOKENS),
            speculation=pb.SpeculationStats(
                drafter="lookup",
                num_drafts=1,
                num_draft_tokens=2,
                num_accepted_tokens=1,
                num_rounds=2,
                accepted_length=1.5,
            ),
        )


@asynccontextmanager
async def serving_grpc(double: GrpcDouble) -> AsyncIterator[str]:
    server = grpc.aio.server()
    add_GenerationServicer_to_server(double, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"grpc://127.0.0.1:{port}"
    finally:
        await server.stop(None)


def _event(body: Any) -> bytes:
    return f"data: {json.dumps(body)}\n\n".encode()
