"""Real prompts by class: public sets where their packages are installed, else our own; long ones of any length."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

import yaml

from services.training.synthesis.dialogue import CLASSES, TaskClass
from services.training.synthesis.evaluation import DataUnavailableError, evaluation_prompts

DATASETS = (*CLASSES, "mixed")
_OWN = "draftfleet"
_LONG_TASK = "Summarise this text in a few sentences:\n\n"
LONG_SOURCE = "Python's language reference, as its help() shows it"


@dataclass(frozen=True, slots=True)
class Prompt:
    """`name` stands for it in results."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Prompts, where they come from, and the parts that a selection holds in equal shares."""

    name: str
    source: str
    parts: tuple[tuple[Prompt, ...], ...]

    def take(self, count: int, seed: int) -> list[Prompt]:
        """`count` prompts, from each part in turn, in an order that depends on the seed alone; all prompts of a part
        come before one of them comes again."""
        rng = random.Random(seed)
        orders = [rng.sample(part, len(part)) for part in self.parts]
        turns = [orders[index % len(orders)] for index in range(count)]
        return [order[index // len(orders) % len(order)] for index, order in enumerate(turns)]


def dataset(name: str) -> PromptSet:
    """chat, code, maths, or all three in turn as mixed. Raises ValueError for another name."""
    if name not in DATASETS:
        raise ValueError(f"dataset: {name!r} is not known; it must be one of {', '.join(DATASETS)}")
    if name != "mixed":
        (task_class,) = (known for known in CLASSES if known == name)
        return _of_class(task_class)
    sets = [_of_class(task_class) for task_class in CLASSES]
    return PromptSet(name, ", ".join(part.source for part in sets), tuple(part.parts[0] for part in sets))


def read_prompts(path: Path) -> PromptSet:
    """One JSON object with "prompt" a line. Raises ValueError with the line's number for anything else."""
    prompts = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip():
            continue
        try:
            text = json.loads(line)["prompt"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f'{path}:{number}: {line[:40]!r} is no prompt; give {{"prompt": "..."}}') from error
        if not isinstance(text, str) or not text:
            raise ValueError(f"{path}:{number}: prompt: {text!r} is not allowed; it must be a text")
        prompts.append(Prompt(f"{path.name}/{number}", text))
    if not prompts:
        raise ValueError(f"{path}: there is no prompt in it; one line each is needed")
    return PromptSet(path.stem, path.name, (tuple(prompts),))


def long_prompts(num_tokens: int, characters_per_token: float, count: int) -> PromptSet:
    """`count` different prompts of about that many tokens. Raises ValueError where not even the task fits."""
    length = round(num_tokens * characters_per_token) - len(_LONG_TASK)
    if length < 1:
        raise ValueError(f"context: {num_tokens} is out of range; it must be at least 32")
    text = _long_text()
    # Starts lie apart, so that no prompt repeats another's beginning behind the task's words.
    starts = (index * len(text) // count for index in range(count))
    doubled = text * (1 + -(-length // len(text)))
    prompts = (
        Prompt(f"context-{num_tokens}/{start}", _LONG_TASK + doubled[start : start + length]) for start in starts
    )
    return PromptSet(f"context-{num_tokens}", LONG_SOURCE, (tuple(prompts),))


def _of_class(task_class: TaskClass) -> PromptSet:
    try:
        found = evaluation_prompts(task_class)
    except DataUnavailableError:
        texts = _own()[task_class]
        named = tuple(Prompt(f"{_OWN}-{task_class}/{index}", text) for index, text in enumerate(texts))
        return PromptSet(task_class, f"{_OWN}'s own {task_class} prompts", (named,))
    named = tuple(Prompt(f"{prompt.source}/{index}", prompt.text) for index, prompt in enumerate(found))
    return PromptSet(task_class, found[0].source, (named,))


@cache
def _own() -> dict[str, list[str]]:
    found: dict[str, list[str]] = yaml.safe_load(resources.files(__package__).joinpath("prompts.yaml").read_text())
    return found


@cache
def _long_text() -> str:
    from pydoc_data.topics import topics

    return "\n\n".join(_paragraphs(topics))


def _paragraphs(topics: dict[str, str]) -> Iterator[str]:
    """Without what help() repeats for every name."""
    seen: set[str] = set()
    for name in sorted(topics):
        for paragraph in topics[name].split("\n\n"):
            if paragraph not in seen:
                seen.add(paragraph)
                yield paragraph
