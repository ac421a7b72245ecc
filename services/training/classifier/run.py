"""Training and evaluation from start to end."""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from services.router.classifier.classifier import WEIGHTS, Classifier
from services.router.classifier.model import load, save
from services.training.classifier import held_out, sources
from services.training.classifier.corpus import Corpus
from services.training.classifier.downloads import Download
from services.training.classifier.fit import FitConfig, fit
from services.training.classifier.report import Judgement, as_json, grouped, judge
from services.training.synthesis.evaluation import DataUnavailableError

_SHOWN = 160  # characters of a prompt that was taken for something else


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The report, and what must not be in it because it differs from run to run."""

    report: dict[str, Any]
    judged: list[Judgement]

    @property
    def median_s(self) -> float:
        return float(np.median([j.seconds for j in self.judged]))

    @property
    def p99_s(self) -> float:
        return float(np.quantile([j.seconds for j in self.judged], 0.99))

    def mistakes(self, per_source: int) -> Iterator[str]:
        """The surest first."""
        for name, group in grouped(self.judged, "source").items():
            wrong = sorted((j for j in group if not j.is_right), key=lambda j: -j.confidence)
            for j in wrong[:per_source]:
                text = " ".join(j.example.conversation.last.split())[:_SHOWN]
                taken = f"{j.example.task_class} taken for {j.given} ({j.confidence:.2f})"
                yield f"{name} {j.example.language}: {taken}: {text}"


def train(root: Path, output: Path | None, tell: Callable[[str], None]) -> Path:
    """Where the weights were written. Raises DataUnavailableError for a missing source, before anything is computed."""
    used = _provenance(root, sources.SOURCES, sources.INSTALLED)
    examples = Corpus(root).examples(tell)
    config = FitConfig()
    model = fit(examples, config, tell)
    path = output or WEIGHTS
    path.parent.mkdir(parents=True, exist_ok=True)
    save(model, path, {"fit": asdict(config), "examples": len(examples), "sources": used})
    return path


def evaluate(root: Path, weights: Path | None, part: held_out.Part) -> Evaluation:
    """Raises DataUnavailableError for a missing source, WeightsError for bad weights."""
    used = _provenance(root, held_out.SOURCES, held_out.INSTALLED)
    classifier = Classifier(load(weights or WEIGHTS))
    classifier.of_prompt("warm-up")
    judged = judge(classifier, held_out.examples(root, part))
    apart = judge(classifier, held_out.set_apart(root))
    report = as_json(
        judged,
        apart,
        {
            "set_apart_why": held_out.SET_APART,
            "part": part,
            "mapping": held_out.MAPPING,
            "weights": hashlib.sha256((weights or WEIGHTS).read_bytes()).hexdigest(),
            "sources_used": used,
        },
    )
    return Evaluation(report, judged)


def _provenance(root: Path, downloads: Iterable[Download], installed: Iterable[str]) -> dict[str, str]:
    """Hashes of archives, versions of installed packages. Raises DataUnavailableError for a missing one."""
    found = {str(download): download.hash(root) for download in downloads}
    for name in installed:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError as error:
            raise DataUnavailableError(f"{name} is not installed; run: pip install {name}") from error
    return found
