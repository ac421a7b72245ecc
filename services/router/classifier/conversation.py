"""Which parts of a request the classifier looks at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from services.router.classifier.features import bounded

MAX_BACKGROUND = 1536  # characters of everything before the last turn of the user
_NEWEST = 6  # turns of the user before the last one


@dataclass(frozen=True, slots=True)
class Conversation:
    """What decides a class: the last turn of the user, far less what came before it."""

    last: str
    background: str = ""  # system message and earlier turns of the user, newest first
    num_earlier: int = 0  # earlier turns of the user
    has_system: bool = False


def of_prompt(text: str) -> Conversation:
    """A bare prompt, which the model goes on with."""
    return Conversation(text)


def of_messages(turns: Sequence[tuple[str, str]]) -> Conversation:
    """From (role, content), oldest first. What the model itself has said is left out."""
    asked = [content for role, content in turns if role == "user"]
    instructions = [content for role, content in turns if role in ("system", "developer")]
    if not asked:
        return Conversation(bounded(instructions[-1], MAX_BACKGROUND) if instructions else "")
    earlier = asked[:-1]
    parts = [*reversed(earlier[-_NEWEST:]), *instructions[:1]]
    each = MAX_BACKGROUND // max(len(parts), 1)
    background = "\n\n".join(bounded(part, each) for part in parts)
    return Conversation(asked[-1], background, len(earlier), bool(instructions))
