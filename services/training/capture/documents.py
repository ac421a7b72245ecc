"""What is captured: dialogues with supervised answers, and plain files supervised throughout."""

from __future__ import annotations

import random
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from services.training.synthesis.dialogue import CLASSES, Dialogue, dialogue_files, read_dialogues

PLAIN_TEXT = len(CLASSES)  # class index of files


@dataclass(frozen=True, slots=True)
class Document:
    """Tokens that are trained on from `first_supervised` to the end; `group` indexes CLASSES, or is PLAIN_TEXT."""

    tokens: tuple[int, ...]
    first_supervised: int
    group: int


def dialogue_shards(folder: Path, max_document: int) -> Iterator[tuple[str, list[Document]]]:
    """One group for each file of dialogues, named after it."""
    for path in dialogue_files(folder):
        documents = [d for d in (_of_dialogue(d, max_document) for d in read_dialogues(path)) if d is not None]
        if documents:
            yield path.stem, documents


def file_shards(
    paths: Iterable[Path], tokenizer: PreTrainedTokenizerBase, max_document: int, max_tokens: int, shard_tokens: int
) -> Iterator[tuple[str, list[Document]]]:
    documents = from_files(paths, tokenizer, max_document, max_tokens)
    for number, group in enumerate(in_groups(documents, shard_tokens)):
        yield f"files-{number:05d}", group


def in_groups(documents: Iterable[Document], num_tokens: int) -> Iterator[list[Document]]:
    """Groups of at most `num_tokens`, or of one longer document."""
    group: list[Document] = []
    count = 0
    for document in documents:
        if group and count + len(document.tokens) > num_tokens:
            yield group
            group, count = [], 0
        group.append(document)
        count += len(document.tokens)
    if group:
        yield group


def _of_dialogue(dialogue: Dialogue, max_document: int) -> Document | None:
    tokens = (*dialogue.prompt, *dialogue.answer)[:max_document]
    if len(tokens) <= len(dialogue.prompt):
        return None
    return Document(tokens, len(dialogue.prompt), CLASSES.index(dialogue.task_class))


def from_files(
    paths: Iterable[Path], tokenizer: PreTrainedTokenizerBase, max_document: int, max_tokens: int
) -> Iterator[Document]:
    """Windows of the files, in order, until `max_tokens` are reached. Files that are not UTF-8 are left out."""
    left = max_tokens
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        ids = list(tokenizer(text, add_special_tokens=False)["input_ids"])
        for start in range(0, len(ids), max_document):
            if left <= 0:
                return
            window = tuple(ids[start : start + max_document])
            left -= len(window)
            yield Document(window, 1, PLAIN_TEXT)


def library_files(seed: int) -> list[Path]:
    """Python's own library, shuffled, without its tests and what has been installed beside it."""
    root = Path(sysconfig.get_paths()["stdlib"])
    left_out = {"site-packages", "test", "tests", "lib2to3", "encodings", "idlelib"}
    paths = [path for path in sorted(root.rglob("*.py")) if not left_out & set(path.parts)]
    random.Random(seed).shuffle(paths)
    return paths
