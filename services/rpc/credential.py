"""What replicas show each other, so that nobody else can use their ports."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import grpc
import grpc.aio
from grpc_health.v1 import health

_NAME = "draftfleet-credential"
_OPEN = f"/{health.SERVICE_NAME}/"
_BYTES = 32
_MIN_LENGTH = 32


@dataclass(frozen=True, slots=True)
class Credential:
    """A random token that all replicas of a cluster share. Its text is in no representation."""

    token: str

    def __post_init__(self) -> None:
        if len(self.token) < _MIN_LENGTH:
            raise ValueError(f"token: it is too short; it must have at least {_MIN_LENGTH} characters")

    def __repr__(self) -> str:
        return "Credential(...)"

    @classmethod
    def random(cls) -> Credential:
        return cls(secrets.token_urlsafe(_BYTES))

    @property
    def metadata(self) -> Metadata:
        """To be sent with every call."""
        return ((_NAME, self.token),)

    def is_shown_in(self, metadata: Any) -> bool:
        """Compared in a time that tells nothing."""
        given = dict(metadata or ()).get(_NAME, "")
        return isinstance(given, str) and hmac.compare_digest(given.encode(), self.token.encode())


Metadata = tuple[tuple[str, str], ...]


def metadata_of(credential: Credential | None) -> Metadata:
    """Nothing without one: for servers that ask for none."""
    return () if credential is None else credential.metadata


def interceptors_of(credential: Credential | None) -> list[CredentialInterceptor]:
    """For grpc.aio.server; without a credential everyone is let in, as between parts of one test."""
    return [] if credential is None else [CredentialInterceptor(credential)]


class CredentialInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # it takes none where it runs
    """Every method but health is closed to strangers, also those that are added one day."""

    def __init__(self, credential: Credential) -> None:
        self._credential = credential

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any]]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any]:
        is_open = handler_call_details.method.startswith(_OPEN)
        if is_open or self._credential.is_shown_in(handler_call_details.invocation_metadata):
            return await continuation(handler_call_details)
        # A stream, whatever was called: so nothing of a stranger's message is waited for or read.
        return grpc.stream_stream_rpc_method_handler(_refuse)


async def _refuse(_: object, context: Any) -> NoReturn:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "this port is for replicas of the cluster alone")
    raise AssertionError("abort always raises")
