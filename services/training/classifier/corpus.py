"""The requests that the classifier learns from. DATA.md tells the sources and their licences."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from services.requests.task import CLASSES, TaskClass
from services.router.classifier.conversation import of_prompt
from services.training.classifier.context import in_context
from services.training.classifier.disguise import disguised
from services.training.classifier.drawing import Drawers
from services.training.classifier.example import Example
from services.training.synthesis.dialogue import text_hash
from services.training.synthesis.evaluation import excluded_keys

# Share of the examples that appear in a made-up language too. Code is full of letters that mean the same everywhere.
_DISGUISED: dict[TaskClass, float] = {"chat": 0.4, "code": 0.2, "maths": 0.5}


@dataclass(frozen=True, slots=True)
class Corpus:
    """Draws examples from sources unpacked in `root`: the same ones for the same sources and seed."""

    root: Path
    seed: int = 0

    def examples(self, tell: Callable[[str], None]) -> list[Example]:
        """All, shuffled, without any that the evaluation uses. Raises DataUnavailableError for a missing source."""
        drawn: list[Example] = []
        for name, (count, draw) in Drawers(self.root).table().items():
            tell(f"drawing {count} of {name}")
            rng = random.Random(f"{self.seed}/{name}")
            drawn += (draw(rng) for _ in range(count))
        drawn = [e for e in drawn if _may_be_used(e.conversation.last)]
        rng = random.Random(f"{self.seed}/disguise")
        drawn += [_disguised(e, rng) for e in drawn if rng.random() < _DISGUISED[e.task_class]]
        rng = random.Random(f"{self.seed}/context")
        by_class = {task: [e for e in drawn if e.task_class == task] for task in CLASSES}
        drawn = [in_context(example, by_class, rng) for example in drawn]
        rng.shuffle(drawn)
        return drawn


def _disguised(example: Example, rng: random.Random) -> Example:
    text = disguised(example.conversation.last, rng)
    return replace(example, conversation=of_prompt(text), language="")


def _may_be_used(text: str) -> bool:
    return bool(text.strip()) and text_hash(text) not in excluded_keys()
