"""Where user turns begin in the target's chat template, so that it can write them itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from transformers import PreTrainedTokenizerBase

from services.models.tokenizer import Message, chat_ids
from services.training.synthesis.dialogue import Prompt

_MARK = "draftfleet-user-turn"


def user_turn_ids(tokenizer: PreTrainedTokenizerBase, opening: str) -> list[int]:
    """Token ids up to and with the first words of a user's turn.

    Raises ValueError when the model has no chat template or the template hides the turn.
    """
    if not tokenizer.chat_template:
        raise ValueError("target: it has no chat template, so it cannot write user turns; set self_written to 0")
    turns = cast(list[dict[str, Any]], [{"role": "user", "content": _MARK}])
    text = cast(str, tokenizer.apply_chat_template(turns, tokenize=False))
    head, mark, _ = text.partition(_MARK)
    if not mark:
        raise ValueError("target: its chat template does not show the user's turn; set self_written to 0")
    return list(tokenizer(head + opening, add_special_tokens=False)["input_ids"])


def prompt_ids(tokenizer: PreTrainedTokenizerBase, prompt: Prompt) -> list[int]:
    """Token ids of a chat up to where the answer begins."""
    turns: Sequence[str] = (*prompt.earlier, prompt.text)
    messages = [Message(role="assistant" if i % 2 else "user", content=text) for i, text in enumerate(turns)]
    return chat_ids(tokenizer, messages)
