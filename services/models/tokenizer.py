"""The tokenizer of a model folder, and what it says about ends and chats."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

from services.models.errors import ModelUnavailableError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class _Said(TypedDict):
    role: str
    content: str


class Message(_Said, total=False):
    """One turn of a chat."""

    tool_calls: list[dict[str, Any]]  # OpenAI's, their arguments decoded
    tool_call_id: str  # of the call that a tool's turn answers


_PROBE_TOOL = {"type": "function", "function": {"name": "probe", "description": "", "parameters": {"type": "object"}}}


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


def chat_ids(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()
) -> list[int]:
    """Prompt ids of a chat, up to where the assistant's turn begins. `tools`: as OpenAI describes them.

    Raises ValueError when the model has no chat template, or the template refuses the messages or knows no tools.
    """
    from jinja2 import TemplateError

    if not tokenizer.chat_template:
        raise ValueError("messages: this model has no chat template; send a plain prompt instead")
    try:
        if tools and not _knows_tools(tokenizer):
            raise ValueError("tools: this model's chat template has no place for them; leave them out")
        if any(m["role"] == "tool" or "tool_calls" in m for m in messages) and not _knows_tools(tokenizer):
            raise ValueError("messages: this model's chat template has no place for calls of tools; leave them out")
        text = _rendered(tokenizer, messages, tools)
    except TemplateError as error:
        raise ValueError(f"messages: the model's chat template refuses them ({error})") from error
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _knows_tools(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether tools change what the template writes: most leave out silently what they do not know."""
    asked = [Message(role="user", content="x")]
    return _rendered(tokenizer, asked, [_PROBE_TOOL]) != _rendered(tokenizer, asked, ())


def _rendered(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> str:
    turns = cast(list[dict[str, Any]], list(messages))
    text = tokenizer.apply_chat_template(turns, tools=list(tools) or None, add_generation_prompt=True, tokenize=False)
    return str(text)
