"""Log-probabilities in OpenAI's two shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from protos import generation_pb2 as pb
from services.gateway.token_text import TextOffsets, shown

TokenBytesOf = Callable[[int], bytes]
_LOWEST = -9999.0  # stands for minus infinity, which JSON does not have


def chat_logprobs(entries: Sequence[pb.TokenLogprobs], top: int, token_bytes: TokenBytesOf) -> dict[str, Any]:
    """`top`: alternatives to tell for each token."""

    def described(token_id: int, logprob: float) -> dict[str, Any]:
        data = token_bytes(token_id)
        return {"token": shown(data), "logprob": _finite(logprob), "bytes": list(data)}

    content = [
        {
            **described(entry.token_id, entry.logprob),
            "top_logprobs": [described(a.token_id, a.logprob) for a in entry.top[:top]],
        }
        for entry in entries
    ]
    return {"content": content, "refusal": None}


class CompletionLogprobs:
    """Builds the logprobs object of one choice, all at once or chunk by chunk."""

    def __init__(self, top: int, token_bytes: TokenBytesOf) -> None:
        self._top = top
        self._token_bytes = token_bytes
        self._offsets = TextOffsets()

    def prompt(self, ids: Sequence[int], entries: Sequence[pb.TokenLogprobs]) -> dict[str, list[Any]]:
        """For an echoed prompt: its first token has no logprob."""
        first = _empty()
        data = self._token_bytes(ids[0])
        first["tokens"].append(shown(data))
        first["token_logprobs"].append(None)
        first["top_logprobs"].append(None)
        first["text_offset"] += self._offsets.of([data])
        following = entries[len(entries) - (len(ids) - 1) :] if len(ids) > 1 else ()
        return joined(first, self.tokens(following))

    def tokens(self, entries: Sequence[pb.TokenLogprobs]) -> dict[str, list[Any]]:
        """For the next tokens of the answer. The token itself is always among its alternatives."""
        part = _empty()
        for entry in entries:
            data = self._token_bytes(entry.token_id)
            part["tokens"].append(shown(data))
            part["token_logprobs"].append(_finite(entry.logprob))
            top = {shown(self._token_bytes(a.token_id)): _finite(a.logprob) for a in entry.top[: self._top]}
            top.setdefault(shown(data), _finite(entry.logprob))
            part["top_logprobs"].append(top)
            part["text_offset"] += self._offsets.of([data])
        return part


def joined(left: dict[str, list[Any]], right: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: left[name] + right[name] for name in left}


def prompt_logprobs(ids: Sequence[int], entries: Sequence[pb.TokenLogprobs], token_bytes: TokenBytesOf) -> list[Any]:
    """One entry for each prompt token, null for the first: {token id: {logprob, decoded_token}}."""

    def described(token_id: int, logprob: float) -> dict[str, Any]:
        return {"logprob": _finite(logprob), "decoded_token": shown(token_bytes(token_id))}

    listed: list[Any] = [None]
    for entry in entries[len(entries) - (len(ids) - 1) :] if len(ids) > 1 else ():
        told = {str(entry.token_id): described(entry.token_id, entry.logprob)}
        told.update({str(a.token_id): described(a.token_id, a.logprob) for a in entry.top})
        listed.append(told)
    return listed


def _empty() -> dict[str, list[Any]]:
    return {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}


def _finite(logprob: float) -> float:
    return max(logprob, _LOWEST)
