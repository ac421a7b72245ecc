"""A request whose class is known."""

from __future__ import annotations

from dataclasses import dataclass

from services.requests.task import TaskClass
from services.router.classifier.conversation import Conversation, of_prompt


@dataclass(frozen=True, slots=True)
class Example:
    """`source` names the data set, `language` is an ISO code or empty where none was given."""

    conversation: Conversation
    task_class: TaskClass
    source: str
    language: str = ""


def prompt_example(task_class: TaskClass, source: str, text: str, language: str = "") -> Example:
    """Of a request that is one turn."""
    return Example(of_prompt(text), task_class, source, language)
