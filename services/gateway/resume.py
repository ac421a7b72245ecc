"""What of an answer is out, so that another target replica can go on with it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from protos import generation_pb2, target_pb2


@dataclass(slots=True)
class ResumeRecord:
    """Belongs to one request. Everything else that a token depends on is in the request itself: prompt, sampling
    parameters and the seed, from which a choice's noise follows. A target rebuilds from the tokens what it withholds
    of their text, and counts tokens and penalties anew.
    """

    num_choices: int
    emitted: dict[int, list[int]] = field(default_factory=dict)  # by choice that has begun
    finished: set[int] = field(default_factory=set)

    @classmethod
    def after(cls, num_choices: int, received: Mapping[int, Sequence[int]]) -> ResumeRecord:
        """Of what a client has received by choice; the others of such a request have ended. Nothing: it begins."""
        record = cls(num_choices, {choice: list(tokens) for choice, tokens in received.items()})
        if received:
            record.finished.update(set(range(num_choices)) - received.keys())
        return record

    def note(self, chunk: generation_pb2.GenerateChunk) -> None:
        """A chunk that the client gets."""
        self.emitted.setdefault(chunk.choice, []).extend(chunk.token_ids)
        if chunk.finish_reason != generation_pb2.FINISH_REASON_UNSPECIFIED:
            self.finished.add(chunk.choice)

    @property
    def has_begun(self) -> bool:
        return bool(self.emitted)

    @property
    def unfinished(self) -> list[int]:
        return [choice for choice in range(self.num_choices) if choice not in self.finished]

    def progress(self) -> list[target_pb2.Progress]:
        """For a replica that goes on; empty when it begins."""
        if not self.has_begun:
            return []
        return [
            target_pb2.Progress(choice=choice, token_ids=self.emitted.get(choice, ())) for choice in self.unfinished
        ]
