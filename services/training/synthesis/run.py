"""Writes a folder of dialogues, shard by shard, and goes on where it was stopped."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from services.target.model.loader import LoadedTarget
from services.training.synthesis.author import Author, Text
from services.training.synthesis.config import SynthesisConfig
from services.training.synthesis.dialogue import (
    CLASSES,
    Dialogue,
    Prompt,
    TaskClass,
    dialogue_files,
    read_dialogues,
    text_hash,
    write_shard,
)
from services.training.synthesis.evaluation import excluded_keys
from services.training.synthesis.sources import opening, packaged
from services.training.synthesis.turns import prompt_ids, user_turn_ids

log = logging.getLogger(__name__)

_MAX_TURN = 160  # tokens of a user turn that the target writes
_MIN_TURN_WORDS = 4
_TURN_TEMPERATURE = 0.7  # at 1 a small target asks nonsense


@dataclass(frozen=True, slots=True)
class SynthesisProgress:
    """Prompts dealt with of all, dialogues kept, tokens written since the start, and why others were dropped."""

    done: int
    total: int
    kept: int
    num_tokens: int
    dropped: dict[str, int]


@dataclass(slots=True)
class _Shard:
    """Jobs index * size ... of the plan; written when none of them is open."""

    path: Path
    num_open: int
    dialogues: list[Dialogue] = field(default_factory=list)


class Synthesis:
    def __init__(
        self, target: LoadedTarget, tokenizer: PreTrainedTokenizerBase, config: SynthesisConfig, folder: Path
    ) -> None:
        self._target, self._tokenizer, self._config, self._folder = target, tokenizer, config, folder
        self._excluded = excluded_keys()
        self._known: set[str] = set()
        self._dropped: Counter[str] = Counter()
        self._done = self._kept = 0

    def run(self, on_progress: Callable[[SynthesisProgress], None], is_stopped: Callable[[], bool]) -> None:
        """Returns when all is written or soon after `is_stopped`; shards that are complete then stay."""
        config = self._config
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in dialogue_files(self._folder):
            for dialogue in read_dialogues(path):
                self._known.add(dialogue.key)
                self._kept += 1
        jobs = self._jobs()
        with Author(self._target, self._tokenizer, config.batch, config.kv_memory_mb, 4 * config.batch) as author:
            self._author = author
            while True:
                # A few more than fit, so that no place in the batch stays empty.
                while author.num_open < config.batch + 8 and (job := next(jobs, None)) is not None:
                    self._begin(*job)
                if author.num_open == 0 or is_stopped():
                    return
                author.next_done()
                on_progress(
                    SynthesisProgress(self._done, config.dialogues, self._kept, author.num_tokens, dict(self._dropped))
                )

    def _jobs(self) -> Iterator[tuple[int, _Shard]]:
        """(index, its shard) of every prompt that is not on disk yet."""
        size, total = self._config.shard, self._config.dialogues
        for number, first in enumerate(range(0, total, size)):
            count = min(size, total - first)
            path = self._folder / f"dialogues-{number:05d}.jsonl"
            if path.exists():
                self._done += count
                continue
            shard = _Shard(path, count)
            for index in range(first, first + count):
                yield index, shard

    def _begin(self, index: int, shard: _Shard) -> None:
        rng = random.Random(f"{self._config.seed}/{index}")
        shares = [getattr(self._config, name) for name in CLASSES]
        task_class: TaskClass = rng.choices(CLASSES, shares)[0]
        if rng.random() >= self._config.self_written:
            self._answer(packaged(task_class, rng), rng, shard)
            return
        first_words = opening(task_class, rng)

        def then(text: Text) -> None:
            words = str(self._tokenizer.decode(list(text.tokens), skip_special_tokens=True))
            prompt = Prompt(task_class, "self", (first_words + words).strip())
            if text.ending != "stop" or len(prompt.text.split()) < _MIN_TURN_WORDS:
                self._end(shard, None, "unfit turn")
            else:
                self._answer(prompt, rng, shard)

        ids = user_turn_ids(self._tokenizer, first_words)
        self._author.write(ids, _TURN_TEMPERATURE, _MAX_TURN, rng.randrange(2**31), then)

    def _answer(self, prompt: Prompt, rng: random.Random, shard: _Shard) -> None:
        reason = objection(prompt, self._excluded, self._known)
        ids = prompt_ids(self._tokenizer, prompt) if reason is None else []
        if len(ids) > self._config.max_prompt:
            reason = "long prompt"
        if reason is not None:
            self._end(shard, None, reason)
            return
        self._known.add(prompt.key)
        temperature = 0.0 if rng.random() < self._config.greedy else 1.0

        def then(text: Text) -> None:
            if len(text.tokens) < self._config.min_answer:
                self._end(shard, None, "short answer")
                return
            dialogue = Dialogue(
                prompt.key, prompt.task_class, prompt.source, temperature, tuple(ids), text.tokens, text.ending
            )
            self._end(shard, dialogue, "")

        self._author.write(ids, temperature, self._config.max_answer, rng.randrange(2**31), then)

    def _end(self, shard: _Shard, dialogue: Dialogue | None, reason: str) -> None:
        self._done += 1
        shard.num_open -= 1
        if dialogue is None:
            self._dropped[reason] += 1
        else:
            shard.dialogues.append(dialogue)
            self._kept += 1
        if shard.num_open == 0:
            write_shard(shard.path, shard.dialogues)


def objection(prompt: Prompt, excluded: Set[str], known: Set[str]) -> str | None:
    """Why a prompt must not be answered for training, or None. Every turn of a dialogue is looked at."""
    if prompt.key in excluded or any(text_hash(turn) in excluded for turn in (*prompt.earlier, prompt.text)):
        return "evaluation prompt"
    return "duplicate" if prompt.key in known else None
