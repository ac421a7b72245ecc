"""Answers evaluation prompts through engine, drafting desk and drafter replica, and tallies or times the drafts."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType

from transformers import PreTrainedTokenizerBase

from services.dcut.local.config import LocalDcutConfig
from services.dcut.messages import Member
from services.requests.sampling import SamplingParams
from services.requests.speculation import Speculation, as_drafter_choice
from services.rpc.credential import Credential
from services.target.config import EngineConfig
from services.target.drafting.config import DraftingConfig
from services.target.drafting.desk import Desk
from services.target.drafting.interface import DraftingContext
from services.target.emission import Emission
from services.target.engine import Engine
from services.target.model.loader import LoadedTarget
from services.target.sequence import Request
from services.training.evaluation.tally import Tally
from services.training.synthesis.dialogue import Prompt
from services.training.synthesis.loops import loop_start
from services.training.synthesis.turns import prompt_ids

_SEED = 1234
_TIMEOUT_S = 3600.0
_CONNECT_S = 30.0
_WAIT_MS = 10_000.0  # a late draft would count as none; here only agreement is measured
_NONE = Speculation("none")


@dataclass(frozen=True, slots=True)
class Drafting:
    """A drafter replica and how it is asked.

    `is_argmax`: at a temperature it drafts its likeliest tokens, as if it did not know the positions' noise.
    """

    kind: str
    address: str
    max_draft: int
    is_argmax: bool = False
    credential: Credential | None = None  # shown to the replica

    @property
    def speculation(self) -> Speculation:
        return Speculation(as_drafter_choice(self.kind), self.max_draft, trace=True)


@dataclass(frozen=True, slots=True)
class Measured:
    """Of one drafter on one set of prompts; answers that end in a loop apart from the others."""

    plain: Tally
    looping: Tally
    seconds: float


@dataclass(slots=True)
class _Answer:
    tokens: list[int] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    began: float = 0.0  # when its first token came
    ended: float = 0.0

    def add(self, emission: Emission) -> None:
        now = time.perf_counter()
        self.tokens.extend(emission.tokens)
        if emission.tokens and self.began:
            self.tally.add_round(emission.trace, len(emission.tokens))
        if emission.tokens:
            self.began, self.ended = self.began or now, now

    @property
    def speed(self) -> float:
        """Decoded tokens a second; 0 for an answer of one step."""
        return self.tally.tokens / (self.ended - self.began) if self.tally.tokens else 0.0


class _ArgmaxDesk(Desk):
    """Tells its drafters that every request is greedy."""

    def open(self, sequence: int, context: DraftingContext, tokens: Sequence[int]) -> None:
        super().open(sequence, replace(context, temperature=0.0), tokens)


class Trial:
    """An engine with one drafter, for as long as it is entered.

    Entering raises RuntimeError when the drafter cannot be reached or used.
    """

    def __init__(
        self, target: LoadedTarget, tokenizer: PreTrainedTokenizerBase, drafting: Drafting, max_tokens: int, batch: int
    ) -> None:
        self._tokenizer, self._drafting, self._max_tokens = tokenizer, drafting, max_tokens
        member = Member("drafter", "evaluation", drafting.address, drafting.kind, "", "", 0, 0, 0, 0, 0, "")
        config = DraftingConfig(
            kinds=(drafting.kind,), local_lookup=False, min_wait_ms=_WAIT_MS, max_wait_ms=_WAIT_MS, quiet_ms=_WAIT_MS
        )
        settings = EngineConfig(
            drafting=config,
            max_sequences=batch,
            max_queue=4096,
            gather_ms=50.0,
            dcut=LocalDcutConfig(mode="off"),  # accepted length is that of whole drafts
        )
        desk_type = _ArgmaxDesk if drafting.is_argmax else Desk
        self._desk = desk_type(
            config, target.spec.vocabulary, target.spec.hidden, "evaluation", lambda: (member,), drafting.credential
        )
        self._engine = Engine(target, tokenizer, settings, self._desk)
        self._num_asked = 0

    def __enter__(self) -> Trial:
        self._desk.start()
        self._engine.start()
        try:
            self._await_drafter()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._engine.stop()
        self._desk.stop()

    def measure(self, prompts: Sequence[Prompt], temperature: float) -> Measured:
        """What became of the drafts, all prompts decoded together. Raises RuntimeError for a request that fails."""
        began = time.monotonic()
        answers = self._answer(prompts, temperature, self._drafting.speculation)
        seconds = time.monotonic() - began
        plain, looping = Tally(), Tally()
        for answer in answers:
            answer.tally.answers = 1
            is_looping = loop_start(answer.tokens) is not None
            answer.tally.looping = int(is_looping)
            (looping if is_looping else plain).add(answer.tally)
        return Measured(plain, looping, seconds)

    def race(self, prompts: Sequence[Prompt], temperature: float) -> list[tuple[float, float]]:
        """Decoded tokens a second with drafts and without, one prompt after another, each alone.

        The order turns from prompt to prompt, so that drift of the machine falls on both. Answers of one
        step are left out. Raises RuntimeError for a request that fails.
        """
        pairs = []
        for index, prompt in enumerate(prompts):
            arms = [self._drafting.speculation, _NONE]
            order = arms if index % 2 == 0 else arms[::-1]
            speed = {arm.drafter: self._answer([prompt], temperature, arm)[0].speed for arm in order}
            with_drafts, without = (speed[arm.drafter] for arm in arms)
            if with_drafts and without:
                pairs.append((with_drafts, without))
        return pairs

    def _answer(self, prompts: Sequence[Prompt], temperature: float, speculation: Speculation) -> list[_Answer]:
        answers = [_Answer() for _ in prompts]
        ended = threading.Semaphore(0)
        errors: list[str] = []
        for index, prompt in enumerate(prompts):

            def sink(emission: Emission, answer: _Answer = answers[index]) -> None:
                answer.add(emission)
                if emission.finish is not None:
                    if emission.finish.reason == "error":
                        errors.append(emission.finish.error)
                    ended.release()

            sampling = SamplingParams(max_tokens=self._max_tokens, temperature=temperature, seed=_SEED + index)
            ids = tuple(prompt_ids(self._tokenizer, prompt))
            self._num_asked += 1
            self._engine.submit(Request(f"evaluation-{self._num_asked}", ids, sampling, speculation, sink))
        for _ in prompts:
            if not ended.acquire(timeout=_TIMEOUT_S):
                raise RuntimeError("the engine does not finish")
        if errors:
            raise RuntimeError(f"a request failed: {errors[0]}")
        return answers

    def _await_drafter(self) -> None:
        """Decodes a few tokens again and again until a draft comes: the connection takes a moment."""
        deadline = time.monotonic() + _CONNECT_S
        attempt = 0
        while time.monotonic() < deadline:
            ended = threading.Event()
            has_drafts: list[bool] = []

            def sink(emission: Emission, ended: threading.Event = ended, found: list[bool] = has_drafts) -> None:
                if emission.finish is not None:
                    found.append(emission.finish.statistics.num_drafts > 0)
                    ended.set()

            sampling = SamplingParams(max_tokens=16, temperature=0.0, seed=0, ignore_eos=True)
            prompt = (attempt % 8 + 1,) * 8
            request = Request(f"warm-up-{attempt}", prompt, sampling, self._drafting.speculation, sink)
            self._engine.submit(request)
            if not ended.wait(_CONNECT_S):
                break
            if has_drafts[0]:
                return
            attempt += 1
            time.sleep(0.2)
        counters = self._desk.counters
        raise RuntimeError(
            f"no draft came from the {self._drafting.kind} drafter within {_CONNECT_S:.0f} s: {counters}"
        )
