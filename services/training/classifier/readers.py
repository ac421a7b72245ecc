"""What lies in unpacked sources: texts of manual pages, of message catalogues, and pieces of code."""

from __future__ import annotations

import gettext
import gzip
import random
import re
from collections.abc import Sequence
from pathlib import Path

_SHORTEST, _LONGEST = 40, 600  # characters of a paragraph
_SHORTEST_MESSAGE = 15
_CODE_LINES = (6, 60)

_FONT = re.compile(r"\\f(\[[^\]]*\]|\(..|.)|\\s[-+]?\d|\\&|\\\||\\c|\\%")
_ESCAPES = {r"\-": "-", r"\(aq": "'", r"\(dq": '"', r"\(bu": "•", r"\(co": "©", r"\e": "\\", r"\~": " ", r"\ ": " "}
_MARKUP = re.compile(r"[<>%{}$=|\\]|&\w+;")


def manual_pages(folder: Path, sections: str) -> list[Path]:
    """Of these sections, in a fixed order."""
    pages = [path for path in folder.glob("usr/share/man/*/man*/*.gz") if path.parent.name[3:4] in sections]
    return sorted(pages)


def language_of(page: Path) -> str:
    """ISO code of a localised manual page."""
    return page.parent.parent.name.split("_")[0]


def paragraphs(page: Path) -> list[str]:
    """Running text of a manual page."""
    found, current = [], ""
    for line in _lines(page):
        if line.startswith((".", "'")) or not line.strip():
            if _SHORTEST <= len(current) <= _LONGEST:
                found.append(current.strip())
            current = ""
        else:
            current += _plain(line) + " "
    return found


def purpose(page: Path) -> str:
    """What the page's name line says the command or function does; empty where it has none."""
    lines = _lines(page)
    for index, line in enumerate(lines):
        if line.startswith(".SH"):
            text = _plain(" ".join(lines[index + 1 : index + 2]))
            _, dash, told = text.partition(" - ")
            return told.strip() if dash else ""
    return ""


def messages(catalogue: Path) -> list[str]:
    """Translated sentences without markup or blanks to fill."""
    with catalogue.open("rb") as file:
        translations = gettext.GNUTranslations(file)
    texts = (value for key, value in translations._catalog.items() if key)  # type: ignore[attr-defined]
    return sorted({text.strip() for text in texts if _is_sentence(text)})


def code_files(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    """In a fixed order, without what was made for machines."""
    paths = [p for p in folder.rglob("*") if p.suffix in suffixes and p.is_file() and not p.is_symlink()]
    return sorted(p for p in paths if 400 < p.stat().st_size < 400_000 and ".min." not in p.name)


def piece_of_code(path: Path, rng: random.Random) -> str:
    """Some lines of a file, or none where they are too long to be written by hand."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    count = rng.randint(*_CODE_LINES)
    start = rng.randrange(max(len(lines) - count, 1))
    piece = "\n".join(lines[start : start + count]).strip("\n")
    return piece if piece.strip() and max(map(len, piece.splitlines())) <= 160 else ""


def _is_sentence(text: str) -> bool:
    return _SHORTEST_MESSAGE <= len(text) <= _LONGEST and not _MARKUP.search(text)


def _lines(page: Path) -> list[str]:
    with gzip.open(page, "rt", encoding="utf-8", errors="replace") as file:
        return [line for line in file.read().splitlines() if not line.startswith((r".\"", r"'\""))]


def _plain(line: str) -> str:
    for escape, text in _ESCAPES.items():
        line = line.replace(escape, text)
    return _FONT.sub("", line)
