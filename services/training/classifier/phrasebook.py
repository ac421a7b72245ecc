"""Requests made of the phrases of a language; the phrases lie in phrases/*.yaml."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import yaml

_FOLDER = Path(__file__).parent / "phrases"
_NUMBER = re.compile(r"\b\d+\b")
_SLOT = re.compile(r"\{([a-z]+)\}")
_PROGRAMMING = (
    "Python", "JavaScript", "TypeScript", "Java", "C", "C++", "C#", "Go", "Rust", "Ruby", "PHP", "SQL", "Bash", "Perl",
    "Kotlin", "Swift", "R", "Haskell", "Lua", "Scala", "MATLAB", "Fortran", "Assembly", "React", "Node.js", "awk",
)  # fmt: skip
_LISTS = {"part": "parts", "topic": "topics", "thing": "things", "name": "names", "item": "items"}
# Names that may be English in any language, so that they say nothing about the class.
_COMMON = {"place": "place", "food": "food", "feeling": "feeling", "job": "job"}

_SPELLED = 0.15  # share of numbers that are words
_SET = 0.3  # share of numbers, terms and equations that are set in TeX

Phrases = Mapping[str, list[str]]


@cache
def phrasebook() -> dict[str, Phrases]:
    """Phrases by language. Raises ValueError for a phrase with a slot that nothing fills."""
    book: dict[str, Phrases] = {}
    for path in sorted(_FOLDER.glob("*.yaml")):
        book.update(yaml.safe_load(path.read_text(encoding="utf-8")))
    for phrases in book.values():
        rng = random.Random(0)
        for key in ("chat", "code", "maths", "statements", "questions"):
            for phrase in phrases[key]:
                fill(phrase, phrases, rng, prose="")
    return book


def fill(phrase: str, phrases: Phrases, rng: random.Random, *, prose: str) -> str:
    """Every slot with something of its own; `prose` is a text that the request is about."""

    def value(match: re.Match[str]) -> str:
        slot = match[1]
        if slot in _LISTS:
            return rng.choice(phrases[_LISTS[slot]])
        if slot in _COMMON:
            return rng.choice(phrases[slot])
        if slot == "n" and rng.random() < _SPELLED:
            return rng.choice(phrases["numbers"])
        if slot not in _MADE:
            raise ValueError(f"phrase {phrase!r}: nothing fills {{{slot}}}")
        return prose if slot == "prose" else _MADE[slot](rng)

    return _SLOT.sub(value, phrase)


def word_problem(phrases: Phrases, rng: random.Random) -> str:
    """One to four statements and a question."""
    statements = rng.sample(phrases["statements"], rng.randint(1, 4))
    joint = "" if statements[0].endswith("。") else " "
    text = joint.join(fill(s, phrases, rng, prose="") for s in (*statements, rng.choice(phrases["questions"])))
    return _NUMBER.sub(r"$\g<0>$", text) if rng.random() < _SET / 2 else text


def _number(rng: random.Random) -> str:
    return str(rng.choice((rng.randint(2, 20), rng.randint(2, 20), rng.randint(20, 1000), rng.randint(1, 99) / 4)))


def _whole(rng: random.Random) -> str:
    return str(rng.choice((rng.randint(2, 12), rng.randint(2, 12), rng.randint(12, 500))))


def _term(rng: random.Random) -> str:
    """Of numbers, or of a letter too."""
    return _in_tex(_tex_sum(rng), rng) if rng.random() < _SET else _plain_sum(rng)


def _equation(rng: random.Random) -> str:
    if rng.random() < _SET:
        return _in_tex(f"{_tex_sum(rng)} = {rng.choice((_number(rng), _tex_sum(rng)))}", rng)
    return f"{_plain_sum(rng)} = {rng.choice((_number(rng), _plain_sum(rng), '0'))}"


def _plain_sum(rng: random.Random) -> str:
    letter = rng.choice("xyzabnt")
    pieces = []
    for _ in range(rng.randint(2, 5)):
        number = _number(rng)
        pieces.append(rng.choice((number, number, f"{number}{letter}", f"({number} - {_number(rng)})", f"{letter}^2")))
    text = pieces[0]
    for piece in pieces[1:]:
        text += rng.choice((" + ", " - ", " * ", " / ", " · ", "+", "-", "*", " × ")) + piece
    return text


def _tex_sum(rng: random.Random) -> str:
    letter = rng.choice("xyzabnt")
    pieces = []
    for _ in range(rng.randint(1, 4)):
        number = _whole(rng)
        fraction = f"\\frac{{{number}}}{{{_whole(rng)}{rng.choice(('', letter))}}}"
        root, power = f"\\sqrt{{{number}}}", f"{letter}^{{{number}}}"
        call = rng.choice(("\\sin {}", "\\log_2 {}", "f({})", "|{}|", "\\left({}\\right)")).format(letter)
        pieces.append(
            rng.choice((number, f"{number}{letter}", fraction, root, power, call, f"{letter}_{rng.randint(0, 9)}"))
        )
    return rng.choice((" + ", " - ", "", " \\cdot ")).join(pieces)


def _in_tex(formula: str, rng: random.Random) -> str:
    first, last = rng.choice((("$", "$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"), ("$$", "$$")))
    return f"{first}{formula}{last}"


_MADE = {
    "n": _whole,
    "year": lambda rng: str(rng.randint(1500, 2030)),
    "lang": lambda rng: rng.choice(_PROGRAMMING),
    "expr": _term,
    "eq": _equation,
    "prose": lambda rng: "",
}
