"""Server-sent events of an OpenAI-compatible stream, read after the answer ended: parsing delays no time stamp."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from orchestration.bench.record import Speculation, spread

_MOST_TOKENS = 1 << 24  # of one answer that is believed


class StreamError(RuntimeError):
    """The stream told an error, or was none."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(slots=True)
class Answer:
    """What a stream said."""

    burst_times: tuple[float, ...] = ()
    token_times: tuple[float, ...] = ()
    are_tokens_told: bool = False
    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    speculation: Speculation | None = None
    text: str = ""
    finish: str = ""


@dataclass(slots=True)
class _Seen:
    bursts: list[float] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    usage: dict[str, Any] | None = None
    draftfleet: dict[str, Any] = field(default_factory=dict)
    finish: str = ""
    finished: float = 0.0


def read_answer(pieces: Iterable[tuple[float, bytes]]) -> Answer:
    """From (arrival, bytes) pieces as they came; an event arrives with the piece that ends it.

    Raises StreamError for an error event, for what is no such stream, and for an answer that ends unfinished.
    """
    try:
        return _read(pieces)
    except (AttributeError, TypeError, ValueError) as error:  # of a body that has another shape
        raise StreamError("not understood", f"an event is shaped otherwise: {error}") from error


def _read(pieces: Iterable[tuple[float, bytes]]) -> Answer:
    seen = _Seen()
    is_done = False
    for time, data in _events(pieces):
        if data == "[DONE]":
            is_done = True
            break
        _note(seen, time, _parsed(data))
    if not seen.finish:
        # Some servers leave the reason out; the closing mark is proof enough then.
        if not is_done:
            raise StreamError("cut off", "the stream ended before the answer did")
        seen.finish = "unknown"
    return _answer(seen)


def _events(pieces: Iterable[tuple[float, bytes]]) -> Iterator[tuple[float, str]]:
    """The data of every event. Data that a server spreads over several lines is joined, as the standard says."""
    rest = b""
    data: list[bytes] = []
    for time, piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for raw in lines:
            line = raw.rstrip(b"\r")
            if not line and data:
                yield time, b"\n".join(data).decode(errors="replace")
                data = []
            elif line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))


def _parsed(data: str) -> dict[str, Any]:
    try:
        body = json.loads(data)
    except ValueError as error:
        raise StreamError("not understood", f"an event is no JSON: {data[:200]}") from error
    if not isinstance(body, dict):
        raise StreamError("not understood", f"an event is no object: {data[:200]}")
    return body


def _note(seen: _Seen, time: float, body: dict[str, Any]) -> None:
    if body.get("error"):
        raise _told(body["error"])
    seen.usage = body.get("usage") or seen.usage
    seen.draftfleet.update(body.get("draftfleet") or {})
    for choice in body.get("choices") or ():
        delta = choice.get("delta") or {}
        text = choice.get("text") or delta.get("content") or delta.get("reasoning_content") or ""
        if text:
            seen.texts.append(text)
            seen.bursts.append(time)
        if choice.get("finish_reason"):
            seen.finish, seen.finished = choice["finish_reason"], time


def _told(error: Any) -> StreamError:
    if isinstance(error, dict):
        return StreamError(f"stream {error.get('code') or error.get('type') or 'error'}", str(error.get("message")))
    return StreamError("stream error", str(error))


def _answer(seen: _Seen) -> Answer:
    usage = seen.usage or {}
    are_told = "completion_tokens" in usage
    num_tokens = int(usage["completion_tokens"]) if are_told else len(seen.bursts)
    if not 0 <= num_tokens <= _MOST_TOKENS:
        raise StreamError("not understood", f"usage tells {num_tokens} completion tokens")
    if num_tokens and not seen.bursts:
        seen.bursts.append(seen.finished)  # tokens without text, such as an end of text
    details = usage.get("prompt_tokens_details") or {}
    return Answer(
        burst_times=tuple(seen.bursts),
        token_times=spread(seen.bursts, num_tokens),
        are_tokens_told=are_told,
        prompt_tokens=int(usage.get("prompt_tokens") or 0),
        cached_prompt_tokens=int(details.get("cached_tokens") or 0),
        speculation=_speculation(seen.draftfleet, num_tokens),
        text="".join(seen.texts),
        finish=seen.finish,
    )


def _speculation(told: dict[str, Any], num_tokens: int) -> Speculation | None:
    """None where the server is not draftfleet."""
    if "accepted_length" not in told:
        return None
    # The prefill's token belongs to no round.
    emitted = max(0, num_tokens - 1)
    length = float(told["accepted_length"])
    num_rounds = int(told["num_rounds"]) if "num_rounds" in told else (round(emitted / length) if length else 0)
    return Speculation(
        drafter=str(told.get("drafter") or "none"),
        num_rounds=num_rounds,
        num_round_tokens=length * num_rounds,
        num_drafts=int(told.get("num_drafts") or 0),
        num_draft_tokens=int(told.get("num_draft_tokens") or 0),
        num_accepted_tokens=int(told.get("num_accepted_tokens") or 0),
    )
