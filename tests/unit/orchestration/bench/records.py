"""Records with times written by the test."""

from __future__ import annotations

from collections.abc import Sequence

from orchestration.bench.record import Record, Speculation


def answered(
    *arrivals: float,
    due: float = 0.0,
    prompt: str = "p/0",
    text_hash: str = "t",
    speculation: Speculation | None = None,
) -> Record:
    """A token at each arrival; neighbours with the same time came in one burst."""
    return Record(
        prompt,
        due,
        due,
        arrivals[-1],
        token_times=arrivals,
        burst_times=tuple(dict.fromkeys(arrivals)),
        prompt_tokens=10,
        speculation=speculation,
        text_hash=text_hash,
        finish="length",
    )


def failed(kind: str, due: float = 0.0, ended: float = 1.0, text: str = "no") -> Record:
    return Record("p/0", due, due, ended, error=kind, error_text=text)


def drafted(rounds: int, tokens: float, drafter: str = "mtp") -> Speculation:
    return Speculation(drafter, rounds, tokens, rounds, 3 * rounds, int(tokens) - rounds)


def at_rate(tokens: int, gap: float, answers: int = 2) -> Sequence[Record]:
    """Answers one after another, each with a token every `gap` seconds."""
    length = tokens * gap
    return [
        answered(*(index * length + (step + 1) * gap for step in range(tokens)), due=index * length)
        for index in range(answers)
    ]
