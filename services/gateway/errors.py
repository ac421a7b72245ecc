"""The one error type of the API, and how gRPC and HTTP tell it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]
from grpc_status import rpc_status


@dataclass(frozen=True, slots=True)
class _Kind:
    http: int
    grpc: grpc.StatusCode
    type: str  # in OpenAI's vocabulary
    code: str


class ErrorKind(Enum):
    """What went wrong, with its status in both protocols."""

    INVALID = _Kind(400, grpc.StatusCode.INVALID_ARGUMENT, "invalid_request_error", "invalid_value")
    UNKNOWN_FIELD = _Kind(400, grpc.StatusCode.INVALID_ARGUMENT, "invalid_request_error", "unknown_parameter")
    UNSUPPORTED = _Kind(400, grpc.StatusCode.INVALID_ARGUMENT, "invalid_request_error", "unsupported_parameter")
    MALFORMED = _Kind(400, grpc.StatusCode.INVALID_ARGUMENT, "invalid_request_error", "malformed_request")
    CONTEXT = _Kind(400, grpc.StatusCode.INVALID_ARGUMENT, "invalid_request_error", "context_length_exceeded")
    UNAUTHENTICATED = _Kind(401, grpc.StatusCode.UNAUTHENTICATED, "invalid_request_error", "invalid_api_key")
    HEADERS_TOO_LARGE = _Kind(431, grpc.StatusCode.INVALID_ARGUMENT, "invalid_request_error", "headers_too_large")
    TOO_LARGE = _Kind(413, grpc.StatusCode.INVALID_ARGUMENT, "invalid_request_error", "request_too_large")
    UNKNOWN_MODEL = _Kind(404, grpc.StatusCode.NOT_FOUND, "invalid_request_error", "model_not_found")
    UNKNOWN_PATH = _Kind(404, grpc.StatusCode.UNIMPLEMENTED, "invalid_request_error", "unknown_url")
    WRONG_METHOD = _Kind(405, grpc.StatusCode.UNIMPLEMENTED, "invalid_request_error", "method_not_allowed")
    OVERLOADED = _Kind(429, grpc.StatusCode.RESOURCE_EXHAUSTED, "rate_limit_error", "overloaded")
    RATE_LIMITED = _Kind(429, grpc.StatusCode.RESOURCE_EXHAUSTED, "rate_limit_error", "rate_limit_exceeded")
    UNAVAILABLE = _Kind(503, grpc.StatusCode.UNAVAILABLE, "server_error", "unavailable")
    DEADLINE = _Kind(504, grpc.StatusCode.DEADLINE_EXCEEDED, "server_error", "deadline_exceeded")
    SLOW_READER = _Kind(408, grpc.StatusCode.ABORTED, "invalid_request_error", "client_too_slow")
    INTERNAL = _Kind(500, grpc.StatusCode.INTERNAL, "server_error", "internal_error")


class ApiError(Exception):
    """A request that ends with an error told to the client.

    `field` names the field at fault as the client wrote it. `retry_after_s` says
    when the same request may succeed.
    """

    def __init__(
        self, kind: ErrorKind, message: str, *, field: str | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.field = field
        self.retry_after_s = retry_after_s

    @classmethod
    def of_value(cls, error: ValueError, names: Mapping[str, str] | None = None) -> ApiError:
        """From a message of the form "field: what is wrong"; `names` maps our field names to the client's."""
        field, colon, rest = str(error).partition(": ")
        if not colon:
            return cls(ErrorKind.INVALID, str(error))
        bare = field.split("[")[0].split(" ")[0]
        shown = (names or {}).get(bare, bare)
        return cls(ErrorKind.INVALID, f"{shown}{field[len(bare) :]}: {rest}", field=shown)

    @property
    def http_status(self) -> int:
        return self.kind.value.http

    @property
    def grpc_code(self) -> grpc.StatusCode:
        return self.kind.value.grpc

    def http_headers(self) -> dict[str, str]:
        if self.kind is ErrorKind.UNAUTHENTICATED:
            return {"WWW-Authenticate": "Bearer"}
        if self.retry_after_s is None:
            return {}
        return {"Retry-After": str(max(1, math.ceil(self.retry_after_s)))}

    def http_body(self) -> dict[str, Any]:
        """In OpenAI's shape."""
        kind = self.kind.value
        return {"error": {"message": self.message, "type": kind.type, "param": self.field, "code": kind.code}}

    def grpc_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        """Trailing metadata with a google.rpc.Status: BadRequest, RetryInfo and ErrorInfo where they apply."""
        details = [error_details_pb2.ErrorInfo(reason=self.kind.value.code.upper(), domain="draftfleet")]
        packed = [_pack(detail) for detail in details]
        if self.field is not None:
            violation = error_details_pb2.BadRequest.FieldViolation(field=self.field, description=self.message)
            packed.append(_pack(error_details_pb2.BadRequest(field_violations=[violation])))
        if self.retry_after_s is not None:
            delay = duration_pb2.Duration()
            delay.FromMilliseconds(round(self.retry_after_s * 1000))
            packed.append(_pack(error_details_pb2.RetryInfo(retry_delay=delay)))
        status = status_pb2.Status(code=self.grpc_code.value[0], message=self.message, details=packed)
        return rpc_status.to_status(status).trailing_metadata


def _pack(message: Any) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed
