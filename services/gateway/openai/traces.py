"""Where every token of an answer came from, for those who ask with `draftfleet.trace`."""

from __future__ import annotations

import codecs
from typing import TypedDict

from protos import generation_pb2 as pb
from services.gateway.token_text import TokenBytes, shown

_ORIGINS = {pb.ORIGIN_PLAIN: "plain", pb.ORIGIN_ACCEPTED: "accepted", pb.ORIGIN_BONUS: "bonus"}


class RejectedToken(TypedDict):
    """A draft token that the target did not choose."""

    id: int
    text: str


class TracedToken(TypedDict):
    """One token of an answer."""

    id: int
    text: str  # what it adds: nothing while a character is incomplete, nor for special tokens
    origin: str  # accepted, bonus or plain
    drafter: str  # whose drafts its step verified; empty where there were none
    time: float  # seconds since the epoch
    rejected: list[RejectedToken]  # drafts thrown away in its place and after


class Trace(TypedDict):
    """The next tokens of a choice; in a stream, those of one engine step."""

    choice: int
    tokens: list[TracedToken]


class Tracer:
    """Takes every chunk of an answer. Texts join to the answer's own, which a stop string may cut shorter."""

    def __init__(self, token_bytes: TokenBytes) -> None:
        self._token_bytes = token_bytes
        self._decoders: dict[int, codecs.IncrementalDecoder] = {}

    def trace(self, choice: int, chunk: pb.GenerateChunk) -> Trace | None:
        """None where the chunk traces nothing."""
        if not chunk.trace:
            return None
        decoder = self._decoders.setdefault(choice, codecs.getincrementaldecoder("utf-8")(errors="replace"))
        told = zip(chunk.token_ids, chunk.trace, chunk.token_times, strict=True)
        return {"choice": choice, "tokens": [self._token(decoder, *token) for token in told]}

    def _token(
        self, decoder: codecs.IncrementalDecoder, token_id: int, trace: pb.TokenTrace, time: float
    ) -> TracedToken:
        return {
            "id": token_id,
            "text": "" if self._token_bytes.is_special(token_id) else decoder.decode(self._token_bytes(token_id)),
            "origin": _ORIGINS[trace.origin],
            "drafter": trace.drafter,
            "time": time,
            "rejected": [{"id": token, "text": shown(self._token_bytes(token))} for token in trace.rejected],
        }


def joined(traces: list[Trace]) -> list[Trace]:
    """One for each choice, in their order."""
    tokens: dict[int, list[TracedToken]] = {}
    for trace in traces:
        tokens.setdefault(trace["choice"], []).extend(trace["tokens"])
    return [{"choice": choice, "tokens": tokens[choice]} for choice in sorted(tokens)]
