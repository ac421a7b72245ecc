"""The classifier with the weights that the package carries."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from services.requests.task import CLASSES, Task, TaskClass
from services.router.classifier.classifier import WEIGHTS, default_classifier
from services.router.classifier.conversation import Conversation
from services.router.classifier.model import NUM_ROWS, LinearModel, WeightsError, encode, load, save

PROMPTS: list[tuple[TaskClass, str]] = [
    ("chat", "What should I see in Rome if I only have an afternoon?"),
    ("chat", "Why does my grandmother always sing when she is cooking?"),
    ("chat", "¿Me ayudas a escribir una carta para mi abuela?"),
    ("chat", "おすすめの映画を教えてください。"),
    ("chat", "Was sollte ich beim ersten Treffen mit den Eltern meiner Freundin beachten?"),
    ("code", "def quicksort(items):\n    "),
    ("code", "My Rust program does not compile: cannot borrow `x` as mutable more than once at a time"),
    ("code", "SELECT name, COUNT(*) FROM orders GROUP BY"),
    ("code", "Schreib mir ein Bash-Skript, das alle leeren Ordner löscht."),
    ("code", "用Python写一个读取CSV文件的函数"),
    ("maths", "A farmer sells 14 of his 52 cows and then buys 9 more. How many cows does he have?"),
    ("maths", "Find all integers $n$ such that $n^2 + 3n + 5$ is divisible by 121."),
    ("maths", "Un vélo coûte 340 euros. Il est soldé à 15 %. Combien coûte-t-il maintenant ?"),
    ("maths", "3x + 7 = 22, x = ?"),
    ("maths", "小明有24颗糖，他给了妹妹8颗，又买了15颗。他现在有多少颗糖？"),
]


@pytest.mark.parametrize(("task", "prompt"), PROMPTS)
def test_prompts_are_told_apart(task: TaskClass, prompt: str) -> None:
    told = default_classifier().of_prompt(prompt)
    assert told.kind == task
    assert 1 / 3 < told.confidence <= 1


@pytest.mark.parametrize(("task", "prompt"), PROMPTS)
def test_a_system_message_does_not_change_it(task: TaskClass, prompt: str) -> None:
    turns = [("system", "You are a helpful assistant."), ("user", prompt)]
    assert default_classifier().of_messages(turns).kind == task


def test_the_last_turn_counts_more_than_the_history() -> None:
    turns = [
        ("user", "Tell me a story about a dragon."),
        ("assistant", "Once upon a time ..."),
        ("user", "Now write a Python function that counts the words of a file."),
    ]
    assert default_classifier().of_messages(turns).kind == "code"


def test_a_last_turn_that_says_nothing_leaves_it_to_the_history() -> None:
    turns = [
        ("user", "def fibonacci(n):\n    # fix this function\n    return"),
        ("assistant", "..."),
        ("user", "go on"),
    ]
    assert default_classifier().of_messages(turns).kind == "code"


@pytest.mark.parametrize("text", ["", " ", "\n", "\ud800", "\x00", "?" * 100_000, "𝛼" * 5000])
def test_any_text_has_a_class(text: str) -> None:
    assert default_classifier().of_prompt(text).kind in CLASSES
    assert default_classifier().of_messages([("user", text)]).kind in CLASSES


def test_no_messages_have_a_class_too() -> None:
    assert default_classifier().of_messages([]).kind in CLASSES


def test_a_prompt_of_100_000_characters_costs_no_more_than_its_ends() -> None:
    assert encode(Conversation("a b c " * 20_000)).ids_F.size <= encode(Conversation("a b c " * 683)).ids_F.size


def test_the_evaluation_beside_the_weights_meets_the_goal() -> None:
    """It is written by `draftfleet classifier eval`, which needs sources that are fetched by name."""
    report = json.loads((WEIGHTS.parent / "evaluation.json").read_text())
    assert report["accuracy"] >= 0.95
    assert report["accuracy_mean_of_sources"] >= 0.95
    assert report["weights"] == hashlib.sha256(WEIGHTS.read_bytes()).hexdigest()


def test_weights_are_small() -> None:
    assert WEIGHTS.stat().st_size < 1 << 20


def test_weights_survive_a_round_trip(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).normal(size=(NUM_ROWS, len(CLASSES))).astype(np.float16).astype(np.float32)
    save(LinearModel(weights, 1.7), tmp_path / "w.safetensors", {"examples": 3})
    read = load(tmp_path / "w.safetensors")
    assert np.array_equal(read.weights_BK, weights)
    assert read.temperature == 1.7


def test_damaged_weights_are_named(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    with pytest.raises(WeightsError, match="cannot be read"):
        load(path)
    path.write_bytes(WEIGHTS.read_bytes()[:1000])
    with pytest.raises(WeightsError, match="cannot be read"):
        load(path)
    save_file(load_file(WEIGHTS), path, {"format": "0", "classes": "chat,code,maths", "temperature": "1"})
    with pytest.raises(WeightsError, match="format"):
        load(path)
    bad = np.full((NUM_ROWS, len(CLASSES)), np.nan, dtype=np.float32)
    save(LinearModel(bad, 1.0), path, {})
    with pytest.raises(WeightsError, match="finite"):
        load(path)
    save(LinearModel(np.zeros_like(bad), 0.0), path, {})
    with pytest.raises(WeightsError, match="temperature"):
        load(path)


def test_probabilities_sum_to_one_and_a_higher_temperature_is_less_sure() -> None:
    weights = np.zeros((NUM_ROWS, len(CLASSES)), dtype=np.float32)
    weights[:, 1] = 3
    features = encode(Conversation("hello there"))
    sure, unsure = LinearModel(weights, 1.0), LinearModel(weights, 10.0)
    assert sure.probabilities_K(features).sum() == pytest.approx(1)
    assert sure.probabilities_K(features)[1] > unsure.probabilities_K(features)[1] > 1 / 3


@pytest.mark.parametrize(("kind", "confidence"), [("poem", 0.5), ("chat", 1.5), ("chat", float("nan"))])
def test_a_task_checks_its_values(kind: str, confidence: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        Task(kind, confidence)  # type: ignore[arg-type]
