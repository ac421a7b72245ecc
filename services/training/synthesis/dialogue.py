"""A dialogue as it is written to disk: token ids, so that training sees exactly what the target saw."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from services.requests.task import CLASSES as CLASSES  # for those who import them from here
from services.requests.task import TaskClass as TaskClass

Ending = Literal["stop", "length", "loop"]


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request for an answer."""

    task_class: TaskClass
    source: str  # where the text comes from
    text: str  # the user's turn, or the last one
    earlier: tuple[str, ...] = ()  # turns before it: user, assistant, user, ...

    @property
    def key(self) -> str:
        return text_hash("\n".join((*self.earlier, self.text)))


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A prompt and the target's own answer to it, the chat template included."""

    key: str
    task_class: TaskClass
    source: str
    temperature: float
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    ending: Ending


def text_hash(text: str) -> str:
    """Equal for texts that differ in case and white space alone."""
    return hashlib.blake2b(" ".join(text.lower().split()).encode(), digest_size=12).hexdigest()


def write_shard(path: Path, dialogues: list[Dialogue]) -> None:
    """One JSON object a line. The file appears whole or not at all."""
    scratch = path.with_suffix(".partial")
    scratch.write_text("".join(json.dumps(asdict(d)) + "\n" for d in dialogues))
    scratch.replace(path)


def dialogue_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("dialogues-*.jsonl"))


def read_dialogues(path: Path) -> Iterator[Dialogue]:
    """Raises ValueError for a line that is no dialogue."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            fields = json.loads(line)
            yield Dialogue(**{**fields, "prompt": tuple(fields["prompt"]), "answer": tuple(fields["answer"])})
        except (TypeError, KeyError, json.JSONDecodeError) as error:
            raise ValueError(f"{path}:{number}: it is not a dialogue ({error})") from error
