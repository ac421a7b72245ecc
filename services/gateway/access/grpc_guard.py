"""The guard at the gRPC door."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import grpc
import grpc.aio
from grpc_health.v1 import health

from services.gateway.access.caller import CALLER
from services.gateway.access.guard import Guard
from services.gateway.errors import ApiError
from services.gateway.metrics import GatewayMetrics

_OPEN = f"/{health.SERVICE_NAME}/"


class GuardInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # it takes none where it runs
    """Every method but health is closed, also those that are added one day."""

    def __init__(self, guard: Guard, metrics: GatewayMetrics) -> None:
        self._guard = guard
        self._metrics = metrics

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any]]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any]:
        if not handler_call_details.method.startswith(_OPEN):
            given = dict(handler_call_details.invocation_metadata or ()).get("authorization")
            try:
                caller = self._guard.admit(given if isinstance(given, str) else None)
            except ApiError as error:
                self._metrics.failed("grpc", error.kind)
                return _refusal(error)
            CALLER.set(caller)  # the handler runs in this task
        return await continuation(handler_call_details)


def _refusal(error: ApiError) -> grpc.RpcMethodHandler[Any, Any]:
    async def refuse(_: object, context: Any) -> NoReturn:
        await context.abort(error.grpc_code, error.message, error.grpc_metadata())
        raise AssertionError("abort always raises")

    # A stream, whatever was called: so nothing of a stranger's message is waited for or read.
    return grpc.stream_stream_rpc_method_handler(refuse)
