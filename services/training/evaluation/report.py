"""Evaluation results as rows, Markdown and JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from services.training.evaluation.tally import Tally, total

FORMULA = (
    "accepted length = tokens emitted in decode rounds / decode rounds (bonus token included, the prefill's token in "
    "neither), over all rounds of all answers; acceptance of position k = rounds whose first k drafts were all "
    "accepted / rounds that offered k"
)


@dataclass(frozen=True, slots=True)
class Result:
    """One cell: a drafter on a class at a temperature."""

    drafter: str
    task_class: str
    temperature: float
    max_draft: int
    plain: Tally
    looping: Tally

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
                "max_draft": result.max_draft,
                "accepted_length": round(whole.accepted_length, 4),
                "accepted_length_without_loops": round(result.plain.accepted_length, 4),
                "accepted_length_of_loops": round(result.looping.accepted_length, 4),
                "acceptance": [round(a, 4) for a in whole.acceptance],
                "acceptance_without_loops": [round(a, 4) for a in result.plain.acceptance],
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
        "| drafter | class | T | answers (looping) | accepted length | without loops | loops | by position |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        whole = result.all
        loops = f"{result.looping.accepted_length:.2f}" if result.looping.answers else ""
        lines.append(
            f"| {result.drafter} | {result.task_class} | {result.temperature:g} | {whole.answers} "
            f"({result.looping.answers}) | {whole.accepted_length:.2f} | {result.plain.accepted_length:.2f} | "
            f"{loops} | {' '.join(f'{a:.2f}' for a in whole.acceptance)} |"
        )
    return "\n".join(lines) + "\n"
