"""Training prompts from installed packages and from openings that the target completes."""

from __future__ import annotations

import ast
import json
import random
import sysconfig
from collections.abc import Callable
from functools import cache
from pathlib import Path

from services.training.synthesis.dialogue import Prompt, TaskClass
from services.training.synthesis.evaluation import COMPLETE, package_folder

# First words of user turns; the empty one leaves all to the target.
_OPENINGS: dict[TaskClass, tuple[str, ...]] = {
    "chat": (
        "", "", "", "How can I", "What is", "What are the", "Can you", "Could you explain", "I need help with",
        "I'm trying to", "Write a", "Write a short story about", "Write an email", "Tell me about", "Why do",
        "Describe", "Give me", "Summarize", "Compare", "Imagine you are", "Please", "Explain", "Help me plan",
        "Should I", "What's the difference between", "Who", "Rewrite the following", "List", "Create a", "Hi",
    ),
    "code": (
        "Write a Python function", "Write a Python function that takes", "Write a Python program", "Implement",
        "Complete this Python function:\n\n```python\ndef", "Fix the bug in this code:\n\n```python\n", "In Python,",
        "How do I use", "Write a class", "Refactor", "Write a SQL query", "Explain this code:\n\n```python\n",
        "Write unit tests for", "Write a JavaScript function", "Add type hints to", "Create a Python script",
        "I have a list of", "Given a string", "Given an array", "Write a recursive function",
    ),
    "maths": (
        "If a train", "A store sells", "Solve for x:", "Calculate", "What is the area of", "Find the", "How many",
        "A rectangle has", "The sum of", "Tom has", "Maria buys", "A farmer has", "If John", "Sarah earns",
        "What is the probability", "Simplify", "Prove that", "A car travels", "The price of", "In a class of",
        "Emily has twice as many", "A recipe needs",
    ),
}  # fmt: skip

GYM_TASKS = (
    "chain_sum", "basic_arithmetic", "simple_equations", "leg_counting", "gcd", "lcm", "prime_factorization",
    "fraction_simplification", "time_intervals", "calendar_arithmetic", "polynomial_equations", "simple_integration",
    "base_conversion", "products", "count_primes", "number_sequence", "simple_geometry", "coin_flip",
    "number_filtering", "complex_arithmetic",
)  # fmt: skip
_GYM_ENDINGS = ("", "", "\n\nThink step by step.", "\n\nShow your work.", "\n\nExplain each step.")
_CODE_FORMS = (
    COMPLETE,
    COMPLETE,
    "Write a Python function for this signature and docstring:\n\n```python\n{code}\n```",
    "Implement the body of this function.\n\n```python\n{code}\n```\n\nThen explain it briefly.",
)
_MIN_DOC, _MAX_DOC = 30, 900  # characters
_MAX_TURNS = 5


def opening(task_class: TaskClass, rng: random.Random) -> str:
    """The first words of a user turn."""
    return rng.choice(_OPENINGS[task_class])


def packaged(task_class: TaskClass, rng: random.Random) -> Prompt:
    """A prompt from a package. Raises DataUnavailableError when it is not installed."""
    return _PACKAGED[task_class](rng)


def _chitchat(rng: random.Random) -> Prompt:
    conversation = rng.choice(conversations())
    turns = rng.randrange(1, min(_MAX_TURNS, len(conversation)) + 1, 2)
    return Prompt("chat", "chitchat", conversation[turns - 1], tuple(conversation[: turns - 1]))


def _library(rng: random.Random) -> Prompt:
    return Prompt("code", "stdlib", rng.choice(_CODE_FORMS).format(code=rng.choice(documented_functions())))


def _gym(rng: random.Random) -> Prompt:
    task, question = gym_question(rng)
    return Prompt("maths", f"reasoning-gym/{task}", question + rng.choice(_GYM_ENDINGS))


def gym_question(rng: random.Random) -> tuple[str, str]:
    """Task and question. Raises DataUnavailableError when reasoning-gym is not installed."""
    package_folder("reasoning_gym", "reasoning-gym")
    import reasoning_gym

    task = rng.choice(GYM_TASKS)
    question: str = reasoning_gym.create_dataset(task, size=1, seed=rng.randrange(2**31))[0]["question"]
    return task, question


_PACKAGED: dict[TaskClass, Callable[[random.Random], Prompt]] = {"chat": _chitchat, "code": _library, "maths": _gym}


@cache
def conversations() -> list[list[str]]:
    path = package_folder("chitchat_dataset", "chitchat-dataset") / "dataset.json"
    conversations = []
    for record in json.loads(path.read_text()).values():
        turns = [" ".join(piece["text"] for piece in message) for message in record["messages"]]
        if turns and all(turns):
            conversations.append(turns)
    return conversations


@cache
def documented_functions() -> list[str]:
    """Signature and docstring of every documented function of Python's own library."""
    found: list[str] = []
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        if {"site-packages", "test", "tests", "lib2to3"} & set(path.parts):
            continue
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, ValueError):  # files that are wrong on purpose, or not UTF-8
            continue
        found.extend(_headed(node) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and _is_told(node))
    return sorted(set(found))


def _is_told(node: ast.FunctionDef) -> bool:
    return _MIN_DOC <= len(ast.get_docstring(node) or "") <= _MAX_DOC


def _headed(node: ast.FunctionDef) -> str:
    head = f"def {node.name}({ast.unparse(node.args)})"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    lines = (ast.get_docstring(node) or "").splitlines()
    body = "\n".join(("    " + line).rstrip() for line in lines)
    return f'{head}{returns}:\n    """{body.strip()}\n    """'
