"""From tokens to text as they come: whole characters only, and nothing past a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

_INCOMPLETE = "\ufffd"
_MAX_CHARACTER_BYTES = 4
_PROMPT_TOKENS = 4
_MAX_HELD_TOKENS = 16  # a longer run of broken bytes is not a character to come
_MAX_BROKEN_TOKENS = 8  # of such a run, kept to see how it ends


class Detokenizer:
    """Incremental decoding of one sequence's output."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, prompt_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        # The tokens of the text last shown, then those that have shown none yet. Never cut between the tokens of
        # a character: some decoders then take all the bytes that follow for broken. At first a few prompt tokens:
        # whether the first word starts with a space depends on them.
        self._window = self._end_of(prompt_ids)
        self._num_told = len(self._window)
        self._shown = len(self._decode(self._window))

    def push(self, token: int) -> str:
        """Text that this token completes, '' while a character is incomplete."""
        self._window.append(token)
        text = self._decode(self._window)
        num_held = len(self._window) - self._num_told
        if text.endswith(_INCOMPLETE):
            # Of a long run of broken bytes, only the last can still become a character.
            return "" if num_held < _MAX_HELD_TOKENS else self._show(text[:-1], self._window[-_MAX_BROKEN_TOKENS:], 1)
        if len(text) > self._shown:
            return self._show(text, self._window[self._num_told :], 0)
        if num_held > _MAX_HELD_TOKENS:
            del self._window[self._num_told]  # tokens without a text, as special ones are
        return ""

    def flush(self) -> str:
        """What is left when no token follows: broken bytes as replacement characters."""
        return self._show(self._decode(self._window), self._window[self._num_told :], 0)

    def _show(self, text: str, window: list[int], num_open: int) -> str:
        """The new part of `text`; `window` stays, with its last `num_open` characters not shown yet."""
        new = text[self._shown :]
        self._window, self._num_told = window, len(window)
        self._shown = len(self._decode(window)) - num_open
        return new

    def _end_of(self, prompt_ids: Sequence[int]) -> list[int]:
        """A few tokens, more where they would begin inside a character."""
        ends = [list(prompt_ids[-n:]) for n in range(_PROMPT_TOKENS, _PROMPT_TOKENS + _MAX_CHARACTER_BYTES)]
        return next((end for end in ends if not self._decode(end).startswith(_INCOMPLETE)), ends[0])

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
