"""What a load needs of an endpoint, whatever it speaks."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Protocol

from orchestration.bench.options import Arm
from orchestration.bench.prompts import Prompt
from orchestration.bench.record import Record


class EndpointError(RuntimeError):
    """An endpoint cannot be used at all: away, refusing, or without the wanted model."""


@dataclass(frozen=True, slots=True)
class Served:
    """What an endpoint says of itself."""

    model: str
    facts: dict[str, Any]


class Client(Protocol):
    """One endpoint, asked by many requests at once. Times are those of time.perf_counter()."""

    async def describe(self) -> Served:
        """Raises EndpointError."""

    async def run(self, prompt: Prompt, due: float) -> Record:
        """Sends one request now and reads its answer to the end; whatever fails is told in the record."""

    async def close(self) -> None: ...


def connect(arm: Arm, timeout_s: float, api_key: str | None = None) -> Client:
    """Opens no connection yet."""
    from orchestration.bench.endpoints.grpc_client import GrpcClient
    from orchestration.bench.endpoints.openai_client import OpenAiClient

    return GrpcClient(arm, timeout_s, api_key) if arm.is_grpc else OpenAiClient(arm, timeout_s, api_key)


def text_hash(text: str) -> str:
    """Tells whether two answers are the same, without keeping them."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
