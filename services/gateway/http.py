"""The HTTP application: OpenAI's API, health, status, and the playground page."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import Send

from protos import generation_pb2 as pb
from services.gateway.access.http_guard import GuardMiddleware
from services.gateway.errors import ApiError, ErrorKind
from services.gateway.fleet_view.summary import summarize
from services.gateway.fleet_view.totals import FleetTotalsView
from services.gateway.gateway import ALIAS, Gateway
from services.gateway.metrics import GatewayMetrics
from services.gateway.openai.plans import Plan, plan_chat, plan_completion
from services.gateway.openai.tokens import detokenize, tokenize
from services.gateway.playground import Playground
from services.gateway.readings import own_snapshot
from services.metrics.exposition import render

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
Planner = Callable[[Gateway, bytes], Awaitable[Plan]]
Teller = Callable[[Gateway, bytes], Awaitable[dict[str, Any]]]
_CLIENT_GONE = 499  # nobody is there to read it


def create_app(gateway: Gateway, totals: FleetTotalsView | None = None) -> FastAPI:
    """All routes over one gateway. Without `totals` /metrics tells what this gateway itself has counted."""
    app = FastAPI(title="draftfleet", docs_url=None, redoc_url=None, openapi_url=None)
    doors = _Doors(gateway, totals)
    app.state.metrics = gateway.metrics
    app.add_api_route("/v1/completions", doors.completions, methods=["POST"])
    app.add_api_route("/v1/chat/completions", doors.chat_completions, methods=["POST"])
    app.add_api_route("/v1/models", doors.models, methods=["GET"])
    app.add_api_route("/v1/models/{name:path}", doors.model, methods=["GET"])
    app.add_api_route("/tokenize", doors.tokenize, methods=["POST"])
    app.add_api_route("/detokenize", doors.detokenize, methods=["POST"])
    app.add_api_route("/healthz", doors.healthz, methods=["GET"])
    app.add_api_route("/readyz", doors.readyz, methods=["GET"])
    app.add_api_route("/status", doors.status, methods=["GET"])
    app.add_api_route("/fleet", doors.fleet, methods=["GET"])
    app.add_api_route("/metrics", doors.metrics, methods=["GET"])
    Playground().add_to(app)
    app.add_exception_handler(ApiError, _tell)
    app.add_exception_handler(HTTPException, _tell_http)
    app.add_exception_handler(ClientDisconnect, _tell_nobody)
    app.add_exception_handler(Exception, _tell_internal)
    config = gateway.config
    app.add_middleware(
        GuardMiddleware,
        guard=gateway.guard,
        metrics=gateway.metrics,
        max_header_bytes=config.max_header_bytes,
        max_body_bytes=config.max_body_bytes,
    )
    if config.access.cors_origins:  # outside of the guard: browsers ask for it without the key
        app.add_middleware(
            CORSMiddleware,
            allow_origins=config.access.cors_origins,
            allow_methods=("GET", "POST"),
            allow_headers=("authorization", "content-type"),
            expose_headers=("retry-after", "x-request-id"),
        )
    return app


class _Doors:
    def __init__(self, gateway: Gateway, totals: FleetTotalsView | None) -> None:
        self._gateway = gateway
        self._totals = totals
        self._started = int(time.time())

    async def completions(self, request: Request) -> Response:
        return await self._answer(request, plan_completion)

    async def chat_completions(self, request: Request) -> Response:
        return await self._answer(request, plan_chat)

    async def tokenize(self, request: Request) -> dict[str, Any]:
        return await self._told(request, tokenize)

    async def detokenize(self, request: Request) -> dict[str, Any]:
        return await self._told(request, detokenize)

    async def models(self) -> dict[str, Any]:
        info = await self._gateway.model_info()
        return {"object": "list", "data": [self._model(info.name, info), self._model(ALIAS, info)]}

    async def model(self, name: str) -> dict[str, Any]:
        self._gateway.check_model(name)
        return self._model(name, await self._gateway.model_info())

    async def healthz(self) -> dict[str, str]:
        return {"status": "alive"}

    async def readyz(self) -> Response:
        if await self._gateway.is_ready():
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "no target replica answers"}, status_code=503)

    async def status(self) -> dict[str, Any]:
        gateway = self._gateway
        try:
            model = _described(await gateway.model_info())
        except ApiError:
            model = None
        return {
            "model": model,
            "dcut": await gateway.targets.dcut(),
            "fleet": gateway.targets.fleet(),
            "members": [asdict(member) for member in gateway.targets.members()],
            "gateway": {
                "active_requests": gateway.admission.active,
                "refused_requests": gateway.admission.refused,
                "refused_keys": gateway.guard.refused,
                "rate_limited_requests": gateway.limiter.refused,
                "lost_attempts": gateway.targets.lost_attempts,
                "resumes": gateway.targets.resumes,
                "failed_routes": gateway.targets.failed_routes,
                "is_draining": gateway.admission.is_draining,
            },
        }

    async def fleet(self) -> dict[str, Any]:
        """From the last known view, without asking anyone: cheap enough to be polled."""
        return {**summarize(self._gateway.targets.members())}

    async def metrics(self) -> Response:
        if self._totals is None:
            snapshot, age_s = own_snapshot(self._gateway), 0.0
        else:
            snapshot, age_s = await self._totals.look()
        return Response(render(snapshot, self._gateway.model_name, age_s), media_type=CONTENT_TYPE_LATEST)

    def _model(self, name: str, info: pb.ModelInfo) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": self._started,
            "owned_by": "draftfleet",
            "root": info.name,
            "max_model_len": info.max_context,
            "draftfleet": _described(info),
        }

    async def _body(self, request: Request) -> bytes:
        limit = self._gateway.config.max_body_bytes
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > limit:
                raise ApiError(ErrorKind.TOO_LARGE, f"body: it is too large; at most {limit} bytes are allowed")
        return bytes(body)

    async def _told(self, request: Request, tell: Teller) -> dict[str, Any]:
        body = await self._body(request)
        with self._gateway.admission.enter():
            return await tell(self._gateway, body)

    async def _answer(self, request: Request, planner: Planner) -> Response:
        body = await self._body(request)
        async with AsyncExitStack() as running:
            running.enter_context(self._gateway.admission.enter())
            plan = await planner(self._gateway, body)
            if not plan.asked.stream:
                answer = await _while_connected(request, plan.whole())
                return JSONResponse(answer, headers={"x-request-id": plan.header.id})
            events = plan.events()
            running.push_async_callback(events.aclose)
            # The status can be told only before the first byte, so the first event decides it.
            first = await _while_connected(request, anext(events))
            return _EventStream(plan.header.id, _encoded(first, events, self._gateway.metrics), running.pop_all())
        raise AssertionError("unreachable")


class _EventStream(StreamingResponse):
    """Server-sent events. Ends what runs behind it when the client goes away, too."""

    def __init__(self, request_id: str, events: AsyncIterator[bytes], running: AsyncExitStack) -> None:
        headers = {"x-request-id": request_id, "cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._running = running

    async def stream_response(self, send: Send) -> None:
        try:
            await super().stream_response(send)
        finally:
            await self._running.aclose()


async def _encoded(
    first: dict[str, Any], rest: AsyncIterator[dict[str, Any]], metrics: GatewayMetrics
) -> AsyncIterator[bytes]:
    try:
        yield _event(first)
        async for body in rest:
            yield _event(body)
        yield b"data: [DONE]\n\n"
    except ApiError as error:
        metrics.failed("http", error.kind)
        yield _event(error.http_body())
    except Exception:
        logger.exception("a streamed request failed")
        metrics.failed("http", ErrorKind.INTERNAL)
        yield _event(ApiError(ErrorKind.INTERNAL, "internal error").http_body())


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body, ensure_ascii=False, allow_nan=False).encode() + b"\n\n"


async def _while_connected(request: Request, work: Coroutine[Any, Any, _T]) -> _T:
    """Cancels the work when the client goes away. Raises ClientDisconnect then."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        for task in (working, watching):
            task.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _described(info: pb.ModelInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "max_context": info.max_context,
        "vocabulary": info.vocabulary,
        "precision": info.precision,
        "exactness": info.exactness,
        "drafters": list(info.drafters),
        "device": info.device,
    }


async def _tell(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    request.app.state.metrics.failed("http", error.kind)
    return JSONResponse(error.http_body(), status_code=error.http_status, headers=error.http_headers())


async def _tell_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path[:256]
    if error.status_code == ErrorKind.WRONG_METHOD.value.http:
        told = ApiError(ErrorKind.WRONG_METHOD, f"{request.method} is not allowed on {path}")
    else:
        told = ApiError(ErrorKind.UNKNOWN_PATH, f"{path}: there is no such path")
    request.app.state.metrics.failed("http", told.kind)
    return JSONResponse(told.http_body(), status_code=error.status_code, headers=error.headers)


async def _tell_nobody(_: Request, __: Exception) -> Response:
    return Response(status_code=_CLIENT_GONE)


async def _tell_internal(request: Request, error: Exception) -> Response:
    logger.error("a request failed", exc_info=error)
    return await _tell(request, ApiError(ErrorKind.INTERNAL, "internal error"))
