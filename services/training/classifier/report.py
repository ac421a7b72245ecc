"""How often the classifier is right: by source, with confusions, speed and calibration."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from services.requests.task import CLASSES, TaskClass
from services.router.classifier.classifier import Classifier
from services.training.classifier.example import Example

_BINS = 10


@dataclass(frozen=True, slots=True)
class Judgement:
    """One example and what the classifier made of it."""

    example: Example
    given: TaskClass
    confidence: float
    seconds: float

    @property
    def is_right(self) -> bool:
        return self.given == self.example.task_class


def judge(classifier: Classifier, examples: Sequence[Example]) -> list[Judgement]:
    """Timed one by one, as requests come."""
    judged = []
    for example in examples:
        started = time.perf_counter()
        task = classifier.of(example.conversation)
        judged.append(Judgement(example, task.kind, task.confidence, time.perf_counter() - started))
    return judged


def accuracy(judged: Sequence[Judgement]) -> float:
    """Share that is right; 1 of none."""
    return sum(j.is_right for j in judged) / len(judged) if judged else 1.0


def confusion(judged: Sequence[Judgement]) -> dict[str, dict[str, int]]:
    """True class, given class, count."""
    return {
        true: {given: sum(j.example.task_class == true and j.given == given for j in judged) for given in CLASSES}
        for true in CLASSES
    }


def calibration_error(judged: Sequence[Judgement]) -> float:
    """Mean distance of confidence and share of right answers, over ten equal intervals of confidence."""
    confidences = np.array([j.confidence for j in judged])
    rights = np.array([j.is_right for j in judged], dtype=float)
    bins = np.minimum((confidences * _BINS).astype(int), _BINS - 1)
    gaps = [abs(confidences[bins == b].mean() - rights[bins == b].mean()) * (bins == b).sum() for b in set(bins)]
    return float(sum(gaps) / len(judged))


def grouped(judged: Sequence[Judgement], by: str) -> dict[str, list[Judgement]]:
    """By an attribute of the example, in alphabetical order."""
    groups: dict[str, list[Judgement]] = {}
    for judgement in sorted(judged, key=lambda j: str(getattr(j.example, by))):
        groups.setdefault(str(getattr(judgement.example, by)) or "-", []).append(judgement)
    return groups


def as_json(judged: Sequence[Judgement], set_apart: Sequence[Judgement], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Everything of the report; no times, which differ from run to run."""
    sources = grouped(judged, "source")
    return {
        "accuracy": round(accuracy(judged), 4),
        "accuracy_mean_of_sources": round(float(np.mean([accuracy(s) for s in sources.values()])), 4),
        "calibration_error": round(calibration_error(judged), 4),
        "confusion": confusion(judged),
        "sources": {
            name: {
                "examples": len(group),
                "accuracy": round(accuracy(group), 4),
                "confusion": confusion(group),
                "languages": {
                    language: [sum(j.is_right for j in some), len(some)]
                    for language, some in grouped(group, "language").items()
                },
            }
            for name, group in sources.items()
        },
        "set_apart": {name: confusion(group) for name, group in grouped(set_apart, "source").items()},
        **facts,
    }


def as_markdown(report: Mapping[str, Any]) -> str:
    """Tables of `as_json`."""
    lines = [
        "# Classifier on sources it has not learnt from",
        "",
        "Written by `draftfleet classifier eval`.",
        "",
        f"Accuracy {report['accuracy']:.1%} over all prompts, {report['accuracy_mean_of_sources']:.1%} as the mean of "
        f"sources; expected calibration error {report['calibration_error']:.3f}.",
        "",
        *_matrix(report["confusion"]),
        "",
        "## By source",
        "",
        "| source | prompts | right | taken for chat | code | maths |",
        "|---|---|---|---|---|---|",
    ]
    for name, source in report["sources"].items():
        taken = " | ".join(str(sum(row[given] for row in source["confusion"].values())) for given in CLASSES)
        lines.append(f"| {name} | {source['examples']} | {source['accuracy']:.1%} | {taken} |")
    lines += ["", "## By language", "", "| language | prompts | right |", "|---|---|---|"]
    languages: dict[str, tuple[int, int]] = {}
    for source in report["sources"].values():
        for language, (right, count) in source["languages"].items():
            before = languages.get(language, (0, 0))
            languages[language] = (before[0] + right, before[1] + count)
    lines += [f"| {language} | {n} | {right / n:.1%} |" for language, (right, n) in sorted(languages.items())]
    if report["set_apart"]:
        lines += ["", "## Set apart", "", report["set_apart_why"], ""]
        for name, matrix in report["set_apart"].items():
            counts = [f"{given} {sum(row[given] for row in matrix.values())}" for given in CLASSES]
            lines.append(f"- {name}: taken for {', '.join(counts)}")
    return "\n".join(lines) + "\n"


def _matrix(matrix: Mapping[str, Mapping[str, int]]) -> list[str]:
    head = ["| true class | " + " | ".join(CLASSES) + " |", "|---" * (len(CLASSES) + 1) + "|"]
    rows = [f"| {true} | " + " | ".join(str(row[given]) for given in CLASSES) + " |" for true, row in matrix.items()]
    return head + rows
