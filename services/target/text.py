"""From tokens to text as they come: whole characters only, and nothing past a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

_INCOMPLETE = "\ufffd"
_MAX_HELD_TOKENS = 16  # a longer run of broken bytes is not a character to come


class Detokenizer:
    """Incremental decoding of one sequence's output."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, prompt_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        # A few prompt tokens: whether the first word starts with a space depends on them.
        self._window = list(prompt_ids[-4:])
        self._shown = len(self._decode(self._window))

    def push(self, token: int) -> str:
        """Text that this token completes, '' while a character is incomplete."""
        self._window.append(token)
        text = self._decode(self._window)
        if text.endswith(_INCOMPLETE) and len(self._window) < _MAX_HELD_TOKENS:
            return ""
        return self._advance(text)

    def flush(self) -> str:
        """What is left when no token follows: broken bytes as replacement characters."""
        return self._advance(self._decode(self._window))

    def _advance(self, text: str) -> str:
        new = text[self._shown :]
        self._window = self._window[-4:]
        self._shown = len(self._decode(self._window))
        return new

    def _decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False))


@dataclass(frozen=True, slots=True)
class StopHit:
    stop: str
    text: str  # what may still be shown


class StopScanner:
    """Holds back text that may turn out to be the start of a stop string."""

    def __init__(self, stops: Sequence[str], *, include_stop: bool) -> None:
        self._stops = stops
        self._include_stop = include_stop
        self._held = ""

    def push(self, text: str) -> str | StopHit:
        """Text that is safe to show, or the earliest stop string to be completed."""
        if not self._stops:
            return text
        self._held += text
        hits = [(at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if hits:
            at, stop = min(hits, key=lambda hit: (hit[0] + len(hit[1]), hit[0]))
            return StopHit(stop, self._held[: at + len(stop) if self._include_stop else at])
        keep = max(self._overlap(stop) for stop in self._stops)
        safe = self._held[: len(self._held) - keep]
        self._held = self._held[len(safe) :]
        return safe

    def flush(self) -> str:
        """All that is held back."""
        held, self._held = self._held, ""
        return held

    def _overlap(self, stop: str) -> int:
        """Length of the longest end of the held text that begins `stop`."""
        longest = min(len(stop) - 1, len(self._held))
        return next((n for n in range(longest, 0, -1) if stop.startswith(self._held[-n:])), 0)
