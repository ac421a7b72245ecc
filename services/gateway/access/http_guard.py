"""The guard at the HTTP door."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from services.gateway.access.caller import CALLER
from services.gateway.access.guard import Guard
from services.gateway.errors import ApiError, ErrorKind
from services.gateway.metrics import GatewayMetrics

# Probes have no key; nor has a browser that opens the page, which holds nothing but its own files.
OPEN_PATHS = frozenset({"/", "/healthz", "/readyz"})
OPEN_BELOW = "/page/"


class GuardMiddleware:
    """Every path but the open ones is closed, also those that are added one day.

    What it refuses, it refuses before a byte of the body is read.
    """

    def __init__(
        self, app: ASGIApp, guard: Guard, metrics: GatewayMetrics, max_header_bytes: int, max_body_bytes: int
    ) -> None:
        self._app = app
        self._guard = guard
        self._metrics = metrics
        self._max_header_bytes = max_header_bytes
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no web sockets here
            await send({"type": "websocket.close", "code": 1008})
            return
        try:
            self._check_size(scope)
            if scope["path"] not in OPEN_PATHS and not scope["path"].startswith(OPEN_BELOW):
                CALLER.set(self._guard.admit(Headers(scope=scope).get("authorization")))  # the app runs in this task
        except ApiError as error:
            self._metrics.failed("http", error.kind)
            refusal = JSONResponse(error.http_body(), status_code=error.http_status, headers=error.http_headers())
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _check_size(self, scope: Scope) -> None:
        size = sum(len(name) + len(value) for name, value in scope["headers"]) + len(scope.get("query_string", b""))
        if size > self._max_header_bytes:
            raise ApiError(ErrorKind.HEADERS_TOO_LARGE, f"headers: at most {self._max_header_bytes} bytes are allowed")
        told = Headers(scope=scope).get("content-length", "")
        if told.isascii() and told.isdigit() and int(told[:20]) > self._max_body_bytes:
            raise ApiError(
                ErrorKind.TOO_LARGE, f"body: it is too large; at most {self._max_body_bytes} bytes are allowed"
            )
