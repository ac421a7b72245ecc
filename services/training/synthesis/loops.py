"""Repetition without end, as small models fall into under greedy decoding."""

from __future__ import annotations

from collections.abc import Sequence

MAX_PERIOD = 64
MIN_REPEATS = 3
MIN_LOOPED = 32  # tokens; lists and tables repeat a little without being loops


def loop_start(tokens: Sequence[int]) -> int | None:
    """Index from which `tokens` only repeat themselves to their end, or None.

    A loop has a period of at most 64 tokens, goes round at least three times and
    covers at least 32 tokens. The smallest period decides.
    """
    end = len(tokens)
    for period in range(1, min(MAX_PERIOD, end // MIN_REPEATS) + 1):
        start = end - period
        while start > 0 and tokens[start - 1] == tokens[start - 1 + period]:
            start -= 1
        if end - start >= max(MIN_LOOPED, MIN_REPEATS * period):
            return start
    return None


def cut_loop(tokens: Sequence[int]) -> tuple[int, ...] | None:
    """The tokens up to where the loop has gone round once; None when there is no loop."""
    start = loop_start(tokens)
    if start is None:
        return None
    end = len(tokens)
    period = next(p for p in range(1, MAX_PERIOD + 1) if all(tokens[i] == tokens[i + p] for i in range(start, end - p)))
    return tuple(tokens[: start + period])
