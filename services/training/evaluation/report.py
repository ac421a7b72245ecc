"""Evaluation results as rows, Markdown and JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from services.training.evaluation.tally import Tally, total

FORMULA = (
    "accepted length = tokens emitted in decode rounds / decode rounds (bonus token included, the prefill's token in "
    "neither), over all rounds of all answers; acceptance of position k = rounds whose first k drafts were all "
    "accepted / rounds that offered k; speed-up = decoded tokens a second with drafts / without, one request at a "
    "time, geometric mean over prompts with its 95% interval"
)


_COLUMNS = (
    "drafter", "class", "T", "answers (looping)", "accepted length", "without loops", "loops", "by position",
    "speed-up",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Speedup:
    """Decoding with drafts over decoding without, in alternating order; the interval holds 95%."""

    ratio: float
    low: float
    high: float
    prompts: int


@dataclass(frozen=True, slots=True)
class Result:
    """One cell: a drafter on a class at a temperature.

    `is_argmax`: its drafts were its likeliest tokens although the temperature was not 0.
    """

    drafter: str
    task_class: str
    temperature: float
    max_draft: int
    plain: Tally
    looping: Tally
    is_argmax: bool = False
    speedup: Speedup | None = None

    @property
    def all(self) -> Tally:
        return total((self.plain, self.looping))


def as_json(results: list[Result], conditions: dict[str, Any]) -> dict[str, Any]:
    """`conditions`: template, max_tokens and whatever else decides the numbers."""
    rows = []
    for result in results:
        whole = result.all
        rows.append(
            {
                "drafter": result.drafter,
                "class": result.task_class,
                "temperature": result.temperature,
                "drafts": "argmax" if result.is_argmax or not result.temperature else "shared noise",
                "max_draft": result.max_draft,
                "accepted_length": round(whole.accepted_length, 4),
                "accepted_length_without_loops": round(result.plain.accepted_length, 4),
                "accepted_length_of_loops": round(result.looping.accepted_length, 4),
                "acceptance": [round(a, 4) for a in whole.acceptance],
                "acceptance_without_loops": [round(a, 4) for a in result.plain.acceptance],
                "speedup": None if result.speedup is None else asdict(result.speedup),
                "counts": {"without_loops": asdict(result.plain), "loops": asdict(result.looping)},
            }
        )
    return {"formula": FORMULA, "conditions": conditions, "results": rows}


def as_markdown(results: list[Result], conditions: dict[str, Any]) -> str:
    lines = [
        f"{FORMULA[0].upper()}{FORMULA[1:]}.",
        "",
        ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in conditions.items()) + ".",
        "",
        f"| {' | '.join(_COLUMNS)} |",
        "|" + "---|" * len(_COLUMNS),
    ]
    lines.extend(as_line(result) for result in results)
    return "\n".join(lines) + "\n"


def as_line(result: Result) -> str:
    """The result's row of the Markdown table."""
    whole, speedup = result.all, result.speedup
    loops = f"{result.looping.accepted_length:.2f}" if result.looping.answers else ""
    gain = "" if speedup is None else f"{speedup.ratio:.2f}x [{speedup.low:.2f}, {speedup.high:.2f}]"
    temperature = f"{result.temperature:g}{', argmax drafts' if result.is_argmax else ''}"
    return (
        f"| {result.drafter} | {result.task_class} | {temperature} | {whole.answers} ({result.looping.answers}) "
        f"| {whole.accepted_length:.2f} | {result.plain.accepted_length:.2f} | {loops} "
        f"| {' '.join(f'{a:.2f}' for a in whole.acceptance)} | {gain} |"
    )
