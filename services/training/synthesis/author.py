"""The target as an author: many texts at a time through the engine, in this process."""

from __future__ import annotations

import itertools
import queue
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from transformers import PreTrainedTokenizerBase

from services.requests.sampling import SamplingParams
from services.requests.speculation import Speculation
from services.target.config import EngineConfig
from services.target.drafting.desk import Desk
from services.target.emission import Emission
from services.target.engine import Engine
from services.target.model.loader import LoadedTarget
from services.target.sequence import Request
from services.training.synthesis.dialogue import Ending
from services.training.synthesis.loops import cut_loop, loop_start

_LOOK_EVERY = 16  # tokens between two looks for a loop


@dataclass(frozen=True, slots=True)
class Text:
    """A finished text; one that looped is cut after the first round of its loop."""

    tokens: tuple[int, ...]
    ending: Ending


@dataclass(slots=True)
class _Draft:
    tokens: list[int] = field(default_factory=list)
    is_looping: bool = False


class AuthorError(RuntimeError):
    """The engine failed on a text."""


class Author:
    """`write` queues a text, `next_done` waits for any that has ended. One thread uses it."""

    def __init__(
        self, target: LoadedTarget, tokenizer: PreTrainedTokenizerBase, batch: int, kv_memory_mb: int, step_rows: int
    ) -> None:
        config = EngineConfig(
            max_sequences=batch, max_step_rows=step_rows, max_queue=4 * batch, kv_memory_mb=kv_memory_mb
        )
        self._desk = Desk(config.drafting, target.spec.vocabulary, target.spec.hidden, "author", lambda: ())
        self._engine = Engine(target, tokenizer, config, self._desk)
        self._done: queue.Queue[tuple[Callable[[Text], None], Text | AuthorError]] = queue.Queue()
        self._ids = itertools.count()
        self.num_open = 0
        self.num_tokens = 0  # written so far, loops included

    def __enter__(self) -> Author:
        self._desk.start()
        self._engine.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.stop()
        self._desk.stop()

    def write(
        self, prompt: Sequence[int], temperature: float, max_tokens: int, seed: int, then: Callable[[Text], None]
    ) -> None:
        """Raises ValueError when the prompt does not fit the target."""
        request_id = f"text-{next(self._ids)}"
        draft = _Draft()

        def sink(emission: Emission) -> None:
            draft.tokens.extend(emission.tokens)
            self.num_tokens += len(emission.tokens)
            if emission.finish is None:
                if len(draft.tokens) % _LOOK_EVERY == 0 and not draft.is_looping and loop_start(draft.tokens):
                    draft.is_looping = True
                    self._engine.abort(request_id)
            elif emission.finish.reason == "error":
                self._done.put((then, AuthorError(emission.finish.error)))
            else:
                self._done.put((then, _finished(draft.tokens, emission.finish.reason == "stop")))

        sampling = SamplingParams(max_tokens=max_tokens, temperature=temperature, seed=seed)
        self._engine.submit(Request(request_id, tuple(prompt), sampling, Speculation("none"), sink))
        self.num_open += 1

    def next_done(self) -> None:
        """Waits for a text and hands it to its `then`. Raises AuthorError."""
        then, text = self._done.get()
        self.num_open -= 1
        if isinstance(text, AuthorError):
            raise text
        then(text)


def _finished(tokens: Sequence[int], is_stopped: bool) -> Text:
    cut = None if is_stopped else cut_loop(tokens)
    if cut is not None:
        return Text(cut, "loop")
    return Text(tuple(tokens), "stop" if is_stopped else "length")
