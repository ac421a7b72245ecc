"""The tokenizer of a model folder, and what it says about ends and chats."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

from services.models.errors import ModelUnavailableError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Message(TypedDict):
    """One turn of a chat."""

    role: str
    content: str


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Raises ModelUnavailableError when the folder holds no tokenizer that transformers can read."""
    from transformers import AutoTokenizer

    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except (ValueError, KeyError, OSError) as error:
        raise ModelUnavailableError(f"{folder}: it has no readable tokenizer ({error})") from error
    return tokenizer


def eos_ids(folder: Path, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Every token id that ends a generation, by the generation config and the tokenizer."""
    ids: set[int] = set()
    path = folder / "generation_config.json"
    if path.is_file():
        listed = json.loads(path.read_text()).get("eos_token_id")
        ids.update(listed if isinstance(listed, list) else [] if listed is None else [listed])
    if isinstance(tokenizer.eos_token_id, int):
        ids.add(tokenizer.eos_token_id)
    return frozenset(ids)


def chat_ids(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> list[int]:
    """Prompt ids of a chat, up to where the assistant's turn begins.

    Raises ValueError when the model has no chat template or the template refuses the messages.
    """
    from jinja2 import TemplateError

    if not tokenizer.chat_template:
        raise ValueError("messages: this model has no chat template; send a plain prompt instead")
    try:
        turns = cast(list[dict[str, Any]], list(messages))
        text = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    except TemplateError as error:
        raise ValueError(f"messages: the model's chat template refuses them ({error})") from error
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])
