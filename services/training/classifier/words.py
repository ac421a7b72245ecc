"""Nouns, definitions and sentences of WordNet, so that no subject belongs to one class."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_QUOTED = re.compile(r'"([^"]{20,300})"')


@dataclass(frozen=True, slots=True)
class Words:
    """In the order of WordNet's files."""

    nouns: list[str]
    definitions: list[str]
    sentences: list[str]


def read_words(folder: Path) -> Words:
    """From the unpacked package wordnet-base."""
    nouns: list[str] = []
    definitions: list[str] = []
    sentences: list[str] = []
    for part in ("noun", "verb", "adj"):
        with (folder / "usr/share/wordnet" / f"data.{part}").open(encoding="utf-8") as lines:
            for line in lines:
                if line.startswith(" "):  # the licence at the top
                    continue
                entry, _, gloss = line.partition(" | ")
                sentences += _QUOTED.findall(gloss)
                if part == "noun":
                    nouns.append(entry.split()[4].replace("_", " "))
                    definitions.append(gloss.split(";")[0].strip())
    return Words(nouns, definitions, sentences)
