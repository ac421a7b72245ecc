"""What stands before a request in real chats: system messages and earlier turns."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from services.requests.task import TaskClass
from services.router.classifier.conversation import MAX_BACKGROUND
from services.router.classifier.features import bounded
from services.training.classifier.example import Example

_SYSTEM_SHARE, _HISTORY_SHARE, _FOLLOW_UP_SHARE = 0.35, 0.25, 0.04
_SAME_CLASS = 0.8  # of an earlier turn

_SYSTEM = (
    "You are a helpful assistant.", "You are a helpful AI assistant.", "You are a friendly assistant. Be concise.",
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face", "Answer in the language of the user.",
    "Today is Monday. Be polite and brief.", "Du bist ein hilfreicher Assistent.", "Tu es un assistant utile.",
    "Eres un asistente útil.", "你是一个乐于助人的助手。", "あなたは親切なアシスタントです。",
)  # fmt: skip
_SYSTEM_OF: Mapping[TaskClass, tuple[str, ...]] = {
    "chat": ("You are a friendly companion.", "You are a writing coach.", "You are a support agent of a hotel."),
    "code": ("You are an expert programmer.", "You are a coding assistant. Answer with code only.",
             "You are a senior software engineer who reviews pull requests."),
    "maths": ("You are a maths tutor.", "Solve the problem and put the final answer in \\boxed{}.",
              "You solve mathematical problems step by step."),
}  # fmt: skip
_FOLLOW_UPS = (
    "why?", "go on", "continue", "And then?", "Can you explain that again?", "please make it shorter", "Are you sure?",
    "What do you mean by that?", "Now do the second one.", "That is wrong, try again.", "yes", "ok", "Explain step 2.",
    "Weiter", "Warum?", "Continue, s'il te plaît", "¿Por qué?", "继续", "続けて", "Дальше", "Can you improve it?",
    "What if it is twice as large?", "Give me another example.", "Do the same for the other one.", "thanks, next",
)  # fmt: skip


def in_context(example: Example, others: Mapping[TaskClass, Sequence[Example]], rng: random.Random) -> Example:
    """The same request, sometimes after other turns; sometimes only a word that goes on with them."""
    task, conversation = example.task_class, example.conversation
    parts: list[str] = []
    last, num_earlier = conversation.last, 0
    if rng.random() < _FOLLOW_UP_SHARE:
        parts.append(last)
        last, num_earlier = rng.choice(_FOLLOW_UPS), 1
    if rng.random() < _HISTORY_SHARE:
        for _ in range(rng.randint(1, 3)):
            earlier = task if rng.random() < _SAME_CLASS or num_earlier else rng.choice(list(others))
            parts.append(rng.choice(others[earlier]).conversation.last)
            num_earlier += 1
    has_system = rng.random() < _SYSTEM_SHARE
    if has_system:
        parts.append(rng.choice((*_SYSTEM, *_SYSTEM_OF[task])))
    each = MAX_BACKGROUND // max(len(parts), 1)
    background = "\n\n".join(bounded(part, each) for part in parts)
    return replace(
        example,
        conversation=replace(
            conversation, last=last, background=background, num_earlier=num_earlier, has_system=has_system
        ),
    )
