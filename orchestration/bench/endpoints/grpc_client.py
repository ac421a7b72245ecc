"""Asks draftfleet's gRPC front door."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from orchestration.bench.endpoints.client import EndpointError, Served, text_hash
from orchestration.bench.options import Arm
from orchestration.bench.prompts import Prompt
from orchestration.bench.record import Record, Speculation
from protos import generation_pb2 as pb
from protos.generation_pb2_grpc import GenerationStub

if TYPE_CHECKING:
    from protos.generation_pb2_grpc import GenerationAsyncStub

_DESCRIBE_TIMEOUT_S = 10.0
_TOLD = 300  # characters of an error's text that are kept
_FINISH = {pb.FINISH_REASON_STOP: "stop", pb.FINISH_REASON_LENGTH: "length", pb.FINISH_REASON_ABORT: "abort"}


class GrpcClient:
    """Knows how many tokens each message brought, and when the engine had them."""

    def __init__(self, arm: Arm, timeout_s: float, api_key: str | None = None) -> None:
        self._arm = arm
        self._timeout_s = timeout_s
        self._metadata = () if api_key is None else (("authorization", f"Bearer {api_key}"),)
        self._channel: grpc.aio.Channel | None = None

    async def describe(self) -> Served:
        try:
            info = await self._stub().GetModel(
                pb.GetModelRequest(model=self._arm.model or "default"),
                timeout=_DESCRIBE_TIMEOUT_S,
                metadata=self._metadata,
            )
        except grpc.aio.AioRpcError as error:
            address = self._arm.url.removeprefix("grpc://")
            if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise EndpointError(f"{address} refuses: {error.details()}") from error
            raise EndpointError(
                f"no draftfleet answers at {address} ({error.details()}). Start it with `draftfleet serve`, "
                "or name another endpoint with --url."
            ) from error
        facts = {
            "precision": info.precision,
            "exactness": info.exactness,
            "device": info.device,
            "max_context": info.max_context,
            "drafters": list(info.drafters),
        }
        return Served(info.name, facts)

    async def run(self, prompt: Prompt, due: float) -> Record:
        chunks: list[tuple[float, float, pb.GenerateChunk]] = []
        sent = time.perf_counter()
        try:
            call = self._stub().Generate(self._request(prompt.text), timeout=self._timeout_s, metadata=self._metadata)
            async for chunk in call:
                chunks.append((time.perf_counter(), time.time(), chunk))
        except grpc.aio.AioRpcError as error:
            return Record(
                prompt.name,
                due,
                sent,
                time.perf_counter(),
                error=f"gRPC {error.code().name}",
                error_text=(error.details() or "")[:_TOLD],
            )
        return _record(prompt.name, due, sent, chunks)

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close(None)

    def _stub(self) -> GenerationAsyncStub:
        # A channel belongs to the event loop that is running when it is made.
        if self._channel is None:
            address = self._arm.url.removeprefix("grpc://")
            self._channel = grpc.aio.insecure_channel(address, options=(("grpc.enable_http_proxy", 0),))
        return GenerationStub(self._channel)

    def _request(self, text: str) -> pb.GenerateRequest:
        arm = self._arm
        request = pb.GenerateRequest(
            model=arm.model or "default",
            sampling=pb.Sampling(
                max_tokens=arm.max_tokens,
                temperature=arm.temperature,
                top_p=arm.top_p,
                seed=arm.seed,
                ignore_eos=arm.ignore_eos,
            ),
            speculation=pb.Speculation(
                drafter=arm.drafter or "auto", max_draft_tokens=arm.max_draft_tokens, force=arm.force
            ),
        )
        if arm.api == "chat":
            request.chat.messages.append(pb.ChatMessage(role="user", content=text))
        else:
            request.text = text
        return request


def _record(name: str, due: float, sent: float, chunks: list[tuple[float, float, pb.GenerateChunk]]) -> Record:
    """Of chunks with the time of their arrival on the monotonic clock and on that of the epoch."""
    ended = time.perf_counter()
    last = chunks[-1][2] if chunks else pb.GenerateChunk()
    if not last.finish_reason:
        return Record(name, due, sent, ended, error="cut off", error_text="the stream ended before the answer did")
    token_times: list[float] = []
    delays: list[float] = []
    for arrival, wall, chunk in chunks:
        token_times += [arrival] * len(chunk.token_ids)
        delays += [wall - stamp for stamp in chunk.token_times]
    told = last.speculation
    return Record(
        name,
        due,
        sent,
        ended,
        token_times=tuple(token_times),
        burst_times=tuple(arrival for arrival, _, chunk in chunks if chunk.token_ids),
        prompt_tokens=last.usage.prompt_tokens,
        cached_prompt_tokens=last.usage.cached_prompt_tokens,
        delays=tuple(delays),
        speculation=Speculation(
            told.drafter or "none",
            told.num_rounds,
            told.accepted_length * told.num_rounds,
            told.num_drafts,
            told.num_draft_tokens,
            told.num_accepted_tokens,
        ),
        text_hash=text_hash("".join(chunk.text for _, _, chunk in chunks)),
        finish=_FINISH.get(last.finish_reason, "unknown"),
    )
