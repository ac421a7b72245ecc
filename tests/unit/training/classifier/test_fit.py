"""Training and judging on examples made here."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from services.requests.task import CLASSES, TaskClass
from services.router.classifier.classifier import Classifier
from services.router.classifier.conversation import Conversation
from services.router.classifier.model import LinearModel, load, save
from services.training.classifier.example import Example, prompt_example
from services.training.classifier.fit import FitConfig, fit
from services.training.classifier.report import accuracy, as_json, as_markdown, calibration_error, confusion, judge

WORDS: dict[TaskClass, str] = {
    "chat": "hello friend story weather",
    "code": "def return class import",
    "maths": "sum 3 + 4 =",
}


def made(count: int, seed: int, source: str = "made") -> list[Example]:
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        task = rng.choice(CLASSES)
        words = [*rng.choices(WORDS[task].split(), k=4), *rng.choices(["the", "a", "of", "to", "in"], k=4)]
        rng.shuffle(words)
        found.append(prompt_example(task, source, " ".join(words), "en"))
    return found


@pytest.fixture(scope="module")
def examples() -> list[Example]:
    return made(400, 0) + made(200, 1, "chitchat")  # chitchat judges the temperature


def test_it_learns_and_the_same_examples_give_the_same_weights(examples: list[Example]) -> None:
    config = FitConfig(epochs=3, batch=32)
    first, second = (fit(examples, config, lambda text: None) for _ in range(2))
    assert np.array_equal(first.weights_BK, second.weights_BK)
    assert first.temperature == second.temperature
    judged = judge(Classifier(first), made(100, 2))
    assert accuracy(judged) >= 0.98


def test_what_came_before_matters_less(examples: list[Example], tmp_path: Path) -> None:
    model = fit(examples, FitConfig(epochs=3, batch=32), lambda text: None)
    model = LinearModel(model.weights_BK, 5.0)  # such words leave no doubt otherwise
    save(model, tmp_path / "w.safetensors", {})
    classifier = Classifier(load(tmp_path / "w.safetensors"))
    alone = classifier.of(Conversation("def return class import"))
    mixed = classifier.of(Conversation("def return class import", "hello friend story weather", 1))
    assert (alone.kind, mixed.kind) == ("code", "code")
    assert mixed.confidence < alone.confidence


def test_the_report_counts_what_was_taken_for_what(examples: list[Example]) -> None:
    model = fit(examples, FitConfig(epochs=2, batch=32), lambda text: None)
    wrong = [prompt_example("chat", "odd", "def return class import", "de")]
    judged = judge(Classifier(model), made(50, 3) + wrong)
    assert confusion(judged)["chat"]["code"] >= 1
    report = as_json(judged, [], {"part": "test"})
    assert report["sources"]["odd"]["accuracy"] == 0.0
    assert report["sources"]["odd"]["languages"] == {"de": [0, 1]}
    assert report["sources"]["made"]["examples"] == 50
    assert report["part"] == "test"
    table = as_markdown(report)
    assert "| odd | 1 | 0.0% | 0 | 1 | 0 |" in table
    assert "| de | 1 | 0.0% |" in table
    assert 0 <= calibration_error(judged) <= 1
