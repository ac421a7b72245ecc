"""The lookup drafter: proposes what followed the last time the text read like this."""

from __future__ import annotations

from collections.abc import Sequence

from services.drafters.drafter import Extension, Opening, Proposal, Question, Traits
from services.drafters.lookup.config import LookupConfig
from services.drafters.lookup.index import SuffixIndex


class LookupDrafter:
    """Needs no model, no hidden states and no torch; also runs inside the target process."""

    def __init__(self, config: LookupConfig, *, max_draft: int, max_position: int) -> None:
        self._config = config
        self._indexes: dict[int, SuffixIndex] = {}
        self.traits = Traits(kind="lookup", max_draft=max_draft, max_position=max_position)

    def open(self, openings: Sequence[Opening]) -> None:
        for opening in openings:
            self._indexes[opening.session] = SuffixIndex(self._config)

    def append(self, extensions: Sequence[Extension]) -> None:
        for extension in extensions:
            self._indexes[extension.session].extend(extension.tokens)

    def catch_up(self, extensions: Sequence[Extension]) -> None:
        for extension in extensions:
            index = self._indexes[extension.session] = SuffixIndex(self._config)
            index.extend(extension.tokens)

    def draft(self, questions: Sequence[Question]) -> Sequence[Proposal]:
        return [Proposal(*self._indexes[question.session].propose(question.max_draft)) for question in questions]

    def close(self, sessions: Sequence[int]) -> None:
        for session in sessions:
            self._indexes.pop(session, None)
