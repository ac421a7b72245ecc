"""Requests as the commands build them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from protos import generation_pb2 as pb


@dataclass(frozen=True, slots=True)
class Controls:
    """What the user asked besides the prompt."""

    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    drafter: str = "auto"
    max_draft_tokens: int | None = None
    trace: bool = False


def text_request(prompt: str, controls: Controls) -> pb.GenerateRequest:
    """Continues a text."""
    return pb.GenerateRequest(
        model="default", text=prompt, sampling=_sampling(controls), speculation=_speculation(controls)
    )


def chat_request(turns: Sequence[tuple[str, str]], controls: Controls) -> pb.GenerateRequest:
    """Answers a chat of (role, content) turns."""
    chat = pb.Chat(messages=[pb.ChatMessage(role=role, content=content) for role, content in turns])
    return pb.GenerateRequest(
        model="default", chat=chat, sampling=_sampling(controls), speculation=_speculation(controls)
    )


def _sampling(controls: Controls) -> pb.Sampling:
    return pb.Sampling(
        max_tokens=controls.max_tokens,
        temperature=controls.temperature,
        top_p=controls.top_p,
        seed=controls.seed,
    )


def _speculation(controls: Controls) -> pb.Speculation:
    return pb.Speculation(drafter=controls.drafter, max_draft_tokens=controls.max_draft_tokens, trace=controls.trace)
