"""The bytes that each token stands for, for logprobs."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class TokenBytes:
    """Reads a token's bytes off the vocabulary instead of decoding it alone, which
    loses the bytes of incomplete characters and leading spaces.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._is_byte_level = _uses_byte_level(tokenizer)
        added = tokenizer.added_tokens_decoder
        self._added = {token.content for token in added.values()}
        self._special = frozenset(number for number, token in added.items() if token.special)
        self._known: dict[int, bytes] = {}  # at most one entry for each token of the vocabulary

    def __call__(self, token_id: int) -> bytes:
        known = self._known.get(token_id)
        if known is None:
            known = self._known[token_id] = self._bytes(token_id)
        return known

    def is_special(self, token_id: int) -> bool:
        """Whether it is left out of texts, as ends of a turn are."""
        return token_id in self._special

    def _bytes(self, token_id: int) -> bytes:
        token: str | None = self._tokenizer.convert_ids_to_tokens([token_id])[0]
        if token is None:  # padding of the embedding matrix
            return b""
        if token in self._added:
            return token.encode()
        if self._is_byte_level:
            return bytes(_BYTE_OF[c] for c in token) if all(c in _BYTE_OF for c in token) else token.encode()
        byte = _BYTE_TOKEN.fullmatch(token)
        if byte is not None:
            return bytes([int(byte[1], 16)])
        return token.replace("\u2581", " ").encode()


def shown(data: bytes) -> str:
    """Text of a token; bytes that are no complete text by their values, so that tokens stay distinct."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


class TextOffsets:
    """Offsets of tokens in the text that they build, in characters."""

    def __init__(self, start: int = 0) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._length = start

    def of(self, tokens: Iterable[bytes]) -> list[int]:
        """Where the text of each of the next tokens begins."""
        offsets = []
        for data in tokens:
            offsets.append(self._length)
            self._length += len(self._decoder.decode(data))
        return offsets


def _uses_byte_level(tokenizer: PreTrainedTokenizerBase) -> bool:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return False
    return _mentions(json.loads(backend.to_str()).get("decoder"), "ByteLevel")


def _mentions(decoder: Any, kind: str) -> bool:
    if not isinstance(decoder, dict):
        return False
    return decoder.get("type") == kind or any(_mentions(d, kind) for d in decoder.get("decoders", ()))


def _byte_characters() -> dict[str, int]:
    """Byte-level vocabularies write every byte as a printable character: itself where
    it is one in Latin-1, else the next unused character from 256 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(256 + index): byte for index, byte in enumerate(others)})
    return table


_BYTE_OF = _byte_characters()
