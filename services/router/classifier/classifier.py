"""From a request to its class. Pure: text in, class out, in less than a millisecond."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from services.requests.task import CLASSES, Task
from services.router.classifier.conversation import Conversation, of_messages, of_prompt
from services.router.classifier.model import LinearModel, encode, load

WEIGHTS = Path(__file__).parent / "weights" / "classifier.safetensors"


class Classifier:
    """Safe for several threads."""

    def __init__(self, model: LinearModel) -> None:
        self._model = model

    def of_prompt(self, text: str) -> Task:
        return self.of(of_prompt(text))

    def of_messages(self, turns: Sequence[tuple[str, str]]) -> Task:
        """From (role, content), oldest first."""
        return self.of(of_messages(turns))

    def of(self, conversation: Conversation) -> Task:
        shares_K = self._model.probabilities_K(encode(conversation))
        best = int(shares_K.argmax())
        return Task(CLASSES[best], float(shares_K[best]))


@cache
def default_classifier() -> Classifier:
    """With the weights that the package carries. Raises WeightsError."""
    return Classifier(load(WEIGHTS))
