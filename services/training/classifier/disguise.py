"""Texts in languages that do not exist: every letter replaced, numbers and signs kept.

Of a language that it has not learnt, the classifier sees no more than this. It learns
from disguised texts what numbers, signs and sentences alone say.
"""

from __future__ import annotations

import random

_FIRST_AND_SIZE = (
    (0x61, 26), (0x61, 26), (0xE0, 23), (0x101, 120), (0x430, 32), (0x3B1, 25), (0x561, 38), (0x5D0, 27), (0x627, 32),
    (0x904, 54), (0x985, 34), (0xB85, 52), (0xC05, 52), (0xE01, 46), (0x10D0, 33), (0x1000, 42), (0x1200, 200),
    (0x1780, 51), (0x4E00, 900), (0x3041, 80), (0xAC00, 900),
)  # fmt: skip
_UNSPACED_FROM = 0xE01  # scripts that mostly write without spaces


def disguised(text: str, rng: random.Random) -> str:
    """The same text in another alphabet, by a substitution that is new each time."""
    first, size = rng.choice(_FIRST_AND_SIZE)
    letters = [chr(code) for code in range(first, first + size) if chr(code).isalpha()]
    table = {letter: rng.choice(letters) for letter in sorted(set(text.lower())) if letter.isalpha()}
    hidden = "".join(table.get(character, character) for character in text.lower())
    return hidden.replace(" ", "") if first >= _UNSPACED_FROM and rng.random() < 0.5 else hidden
