"""Hashed features of a text, whatever the language: n-grams of characters and of words, and its shape.

The shape (how many numbers, sentences, lines, signs of code or of maths) is what is
left to go by in a language that the classifier has not learnt.

Integer arithmetic alone decides the ids, so a text has the same ones on every
machine. Everything is vectorised.

Suffixes: C characters, W words, F distinct features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from services.router.classifier.hashing import GOLDEN, UInts, mixed, salt
from services.router.classifier.shape import shape_hashes

Bools = npt.NDArray[np.bool_]

_BITS = 16
NUM_BUCKETS = 1 << _BITS
MAX_CHARACTERS = 4096  # of one text; of a longer one, both ends
_LONGEST = 4  # characters of an n-gram
_OPENING_WORDS = 4  # first words count once more: "Write", "Solve", "Schreibe"

_STEP = np.uint32(0x01000193)
_WORD, _PAIR, _OPENING = _LONGEST + 1, _LONGEST + 2, _LONGEST + 3  # families; n-grams of characters are 1 .. 4

# First digits of the decimal systems that people write to us in.
_ZEROS = (0x0660, 0x06F0, 0x0966, 0x09E6, 0x0C66, 0x0E50)
_ZERO = np.uint32(ord("0"))
_WIDE, _NARROW = np.uint32(0xFF01), np.uint32(ord("!"))  # full-width forms of ASCII, as in Chinese and Japanese
_ASCII_LETTERS = np.array([chr(code).isalnum() or chr(code) == "_" for code in range(128)] + [True])
_SYMBOLS = ((0x80, 0xBF), (0x2000, 0x2BFF), (0x3000, 0x303F))


@dataclass(frozen=True, slots=True)
class Features:
    """Sparse vector of ids and values; an id may stand in it more than once, and its values add up."""

    ids_F: npt.NDArray[np.integer]
    values_F: npt.NDArray[np.float32]


def features_of(text: str) -> Features:
    """Square roots of shares: characters, words and shape have each a length of 1."""
    if not text:
        return Features(np.zeros(0, dtype=np.uint16), np.zeros(0, dtype=np.float32))
    codes_C = _codes(bounded(text, MAX_CHARACTERS))
    is_letter_C = _is_letter(codes_C)
    families = (_character_hashes(codes_C), _word_hashes(codes_C, is_letter_C), shape_hashes(codes_C, is_letter_C))
    parts = [_shares(hashes) for hashes in families if hashes.size]
    return Features(np.concatenate([ids for ids, _ in parts]), np.concatenate([values for _, values in parts]))


def bounded(text: str, limit: int) -> str:
    """Head and tail where the text is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    head = limit // 2
    return text[:head] + text[len(text) - (limit - head) :]


def _codes(text: str) -> UInts:
    """Code points in lower case, every digit as a 0: which number it is says nothing of the class."""
    codes_C = np.frombuffer(text.lower().encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    if codes_C.size and codes_C.max() >= _ZEROS[0]:
        codes_C = np.where(codes_C - _WIDE < 94, codes_C - _WIDE + _NARROW, codes_C)
        for zero in _ZEROS:
            codes_C = np.where(codes_C - np.uint32(zero) < 10, _ZERO, codes_C)
    return np.where(codes_C - _ZERO < 10, _ZERO, codes_C)  # below "0" wraps to a large number


def _character_hashes(codes_C: UInts) -> UInts:
    """Of every run of 1 to 4 characters."""
    found = []
    running = np.zeros_like(codes_C)
    for length in range(1, min(_LONGEST, codes_C.size) + 1):
        running = running[: codes_C.size - length + 1] * _STEP + codes_C[length - 1 :]
        found.append(mixed(running, salt(length)))
    return np.concatenate(found) if found else codes_C


def _word_hashes(codes_C: UInts, is_letter_C: Bools) -> UInts:
    """Of every word, every pair of neighbours, and the first words once more."""
    edges = np.flatnonzero(np.diff(is_letter_C, prepend=False, append=False))
    starts_W = edges[::2]
    if not starts_W.size:
        return codes_C[:0]
    # A word's hash is the sum of its letters, each mixed with its place in the word.
    start_of_C = np.zeros(codes_C.size, dtype=np.uint32)
    start_of_C[starts_W] = starts_W
    places_C = np.arange(codes_C.size, dtype=np.uint32) - np.maximum.accumulate(start_of_C)
    letters_C = np.where(is_letter_C, mixed(codes_C, places_C * np.uint32(GOLDEN)), np.uint32(0))
    words_W = np.add.reduceat(letters_C, starts_W)
    pairs = words_W[:-1] * _STEP + words_W[1:]
    return np.concatenate(
        [
            mixed(words_W, salt(_WORD)),
            mixed(pairs, salt(_PAIR)),
            mixed(words_W[:_OPENING_WORDS], salt(_OPENING)),
        ]
    )


def _is_letter(codes_C: UInts) -> Bools:
    """Letters, digits and underscores; beyond ASCII all but the usual blocks of punctuation and symbols."""
    is_letter_C = _ASCII_LETTERS[np.minimum(codes_C, 128)]
    for first, last in _SYMBOLS:
        is_letter_C = is_letter_C & ~((codes_C >= first) & (codes_C <= last))
    return is_letter_C


def _shares(hashes: UInts) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.float32]]:
    """Distinct buckets, and the square roots of how often each was met."""
    buckets = np.sort((hashes >> np.uint32(32 - _BITS)).astype(np.uint16))  # 16 bits sort far faster than 32
    starts_F = np.flatnonzero(np.diff(buckets, prepend=~buckets[:1]))
    counts_F = np.diff(starts_F, append=buckets.size)
    return buckets[starts_F], np.sqrt(counts_F.astype(np.float32) / np.float32(buckets.size))
