"""Text to token ids and back, off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from services.gateway.token_text import TokenBytes
from services.models.tokenizer import Message, chat_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_T = TypeVar("_T")


class Tokenization:
    """One thread uses the tokenizer, because it is not safe for several; it serves
    requests in order, and a cancelled one is skipped.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tokenizer")
        self.token_bytes = TokenBytes(tokenizer)

    async def warm_up(self) -> None:
        """Pays once for what transformers imports at the first use: seconds."""
        await self._run(lambda: self._tokenizer.decode(self._tokenizer("a")["input_ids"]))

    async def prompt_ids(self, text: str, *, add_special: bool = True) -> list[int]:
        """Ids of a plain prompt; `add_special`: with the special tokens that the model starts with."""
        return await self._run(lambda: list(self._tokenizer(text, add_special_tokens=add_special)["input_ids"]))

    async def chat_ids(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()) -> list[int]:
        """Ids of a chat up to the assistant's turn. Raises ValueError when the template refuses it."""
        return await self._run(lambda: chat_ids(self._tokenizer, messages, tools))

    async def word_ids(self, words: Sequence[str]) -> list[list[int]]:
        """Ids of each text alone, without special tokens."""

        def encode() -> list[list[int]]:
            return [list(self._tokenizer(word, add_special_tokens=False)["input_ids"]) for word in words]

        return await self._run(encode)

    async def text(self, ids: Sequence[int]) -> str:
        return await self._run(lambda: str(self._tokenizer.decode(list(ids))))

    async def pieces(self, ids: Sequence[int]) -> list[bytes]:
        """What each token stands for."""
        return await self._run(lambda: [self.token_bytes(token) for token in ids])

    async def entries(self, ids: Sequence[int]) -> list[str]:
        """Each token as the vocabulary writes it."""
        return await self._run(lambda: [str(entry) for entry in self._tokenizer.convert_ids_to_tokens(list(ids))])

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _run(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
