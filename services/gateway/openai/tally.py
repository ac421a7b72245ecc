"""What an answer adds up: usage and speculation, over prompts and choices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from protos import generation_pb2 as pb
from services.requests.task import Task


class Tally:
    """Takes every chunk of one HTTP request; `choice` counts over all its prompts, which `tasks` classes."""

    def __init__(self, tasks: Sequence[Task], choices_per_prompt: int) -> None:
        self._tasks = tasks
        self._num_choices = len(tasks) * choices_per_prompt
        self._per_prompt = choices_per_prompt
        self._usage: dict[int, pb.Usage] = {}
        self._stats: dict[int, pb.SpeculationStats] = {}
        self.seed: int | None = None

    def add(self, choice: int, chunk: pb.GenerateChunk) -> None:
        if self.seed is None:
            self.seed = chunk.seed
        if chunk.finish_reason != pb.FINISH_REASON_UNSPECIFIED:
            self._usage[choice] = chunk.usage
            self._stats[choice] = chunk.speculation

    @property
    def is_complete(self) -> bool:
        return len(self._usage) == self._num_choices

    def usage(self) -> dict[str, Any]:
        """A prompt counts once, whatever the number of its choices."""
        prompts = [self._usage[choice] for choice in sorted(self._usage) if choice % self._per_prompt == 0]
        prompt_tokens = sum(usage.prompt_tokens for usage in prompts)
        completion_tokens = sum(usage.completion_tokens for usage in self._usage.values())
        return {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
            "prompt_tokens_details": {"cached_tokens": sum(usage.cached_prompt_tokens for usage in prompts)},
        }

    def opening(self) -> dict[str, Any]:
        """What is known when the first token comes."""
        return {"seed": self.seed, **self._task()}

    def draftfleet(self) -> dict[str, Any]:
        """Drafter kinds are joined by commas where choices differ; lengths are means over all rounds."""
        stats = list(self._stats.values())
        num_rounds = sum(s.num_rounds for s in stats)
        emitted = sum(s.accepted_length * s.num_rounds for s in stats)
        return {
            "drafter": ",".join(sorted({s.drafter or "none" for s in stats})),
            "requested_drafter": ",".join(sorted({s.requested_drafter for s in stats})),
            "accepted_length": round(emitted / num_rounds, 4) if num_rounds else 0.0,
            "num_rounds": num_rounds,
            "num_drafts": sum(s.num_drafts for s in stats),
            "num_draft_tokens": sum(s.num_draft_tokens for s in stats),
            "num_accepted_tokens": sum(s.num_accepted_tokens for s in stats),
            # One replica that only promises ties is enough to lose the stronger word.
            "exactness": max((s.exactness for s in stats), default=""),
            **self._task(),
            "seed": self.seed,
        }

    def _task(self) -> dict[str, Any]:
        """Classes are joined by commas where prompts differ; the confidence is the least sure one's."""
        return {
            "class": ",".join(sorted({task.kind for task in self._tasks})),
            "class_confidence": round(min(task.confidence for task in self._tasks), 4),
        }
