"""One chat and one code prompt, each answered with drafts and without, in turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from orchestration.cli.answer import Answer, collect
from orchestration.cli.client import Client
from orchestration.cli.requests import Controls, chat_request

_CODE = '''def merge_intervals(intervals):
    """Merge overlapping intervals and return them in order."""
    if not intervals:
        return []
    intervals = sorted(intervals, key=lambda interval: interval[0])
    merged = [intervals[0]]
    for start, end in intervals[1:]:
        last_start, last_end = merged[-1]
        if start <= last_end:
            merged[-1] = (last_start, max(last_end, end))
        else:
            merged.append((start, end))
    return merged
'''


@dataclass(frozen=True, slots=True)
class Prompt:
    title: str
    text: str
    max_tokens: int


CHAT = Prompt("chat", "Explain in a few sentences why the sky is blue.", 128)
CODE = Prompt("code", f"Repeat this Python code exactly, without changes:\n\n```python\n{_CODE}```", 224)
PROMPTS = (CHAT, CODE)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The same prompt with and without drafts; speeds are tokens per second, prefill included."""

    prompt: Prompt
    drafted: Answer
    plain: Answer
    drafted_speed: float
    plain_speed: float

    @property
    def is_identical(self) -> bool:
        return self.drafted.token_ids == self.plain.token_ids and self.drafted.text == self.plain.text

    @property
    def speedup(self) -> float:
        return self.drafted_speed / self.plain_speed


def compare(client: Client, prompt: Prompt, announce: Callable[[str], None]) -> Comparison:
    """Runs drafted, plain, plain, drafted, so that a drift of the machine falls on both; shows the first answer.

    Raises Failure when the service refuses a request.
    """
    controls = Controls(max_tokens=prompt.max_tokens)

    def run(drafter: str, show: bool = False) -> Answer:
        return collect(
            client.generate(chat_request([("user", prompt.text)], replace(controls, drafter=drafter))), show=show
        )

    announce(prompt.text)
    drafted = [run("auto", show=True)]
    plain = [run("none"), run("none")]
    drafted.append(run("auto"))
    differing = [answer for answer in drafted if answer.token_ids != plain[0].token_ids]
    return Comparison(
        prompt,
        differing[0] if differing else drafted[-1],
        plain[0],
        drafted_speed=_speed(drafted),
        plain_speed=_speed(plain),
    )


def _speed(answers: list[Answer]) -> float:
    return sum(len(answer.token_ids) for answer in answers) / sum(answer.seconds for answer in answers)
