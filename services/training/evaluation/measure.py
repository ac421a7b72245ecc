"""Answers evaluation prompts through engine, drafting desk and drafter replica, and tallies the drafts."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from transformers import PreTrainedTokenizerBase

from services.dcut.messages import Member
from services.requests.sampling import SamplingParams
from services.requests.speculation import Speculation, as_drafter_choice
from services.target.config import EngineConfig
from services.target.drafting.config import DraftingConfig
from services.target.drafting.desk import Desk
from services.target.emission import Emission
from services.target.engine import Engine
from services.target.model.loader import LoadedTarget
from services.target.sequence import Request
from services.training.config import EvalConfig
from services.training.evaluation.tally import Tally
from services.training.synthesis.dialogue import Prompt
from services.training.synthesis.loops import loop_start
from services.training.synthesis.turns import prompt_ids

_SEED = 1234
_TIMEOUT_S = 3600.0
_CONNECT_S = 30.0
_WAIT_MS = 10_000.0  # a late draft would count as none; here only agreement is measured


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
    has_begun: bool = False

    def add(self, emission: Emission) -> None:
        self.tokens.extend(emission.tokens)
        if emission.tokens and self.has_begun:
            self.tally.add_round(emission.trace, len(emission.tokens))
        self.has_begun = self.has_begun or bool(emission.tokens)


def measure(
    target: LoadedTarget,
    tokenizer: PreTrainedTokenizerBase,
    kind: str,
    address: str,
    max_draft: int,
    prompts: Sequence[Prompt],
    temperature: float,
    config: EvalConfig,
) -> Measured:
    """`address` is that of a drafter replica of the kind. Raises RuntimeError when it cannot be reached or used."""
    member = Member("drafter", "evaluation", address, kind, "", "", 0, 0, 0, 0, 0, "")
    drafting = DraftingConfig(
        kinds=(kind,), local_lookup=False, min_wait_ms=_WAIT_MS, max_wait_ms=_WAIT_MS, quiet_ms=_WAIT_MS
    )
    settings = EngineConfig(drafting=drafting, max_sequences=config.batch, max_queue=len(prompts) + 1, gather_ms=50.0)
    desk = Desk(drafting, target.spec.vocabulary, target.spec.hidden, "evaluation", lambda: (member,))
    desk.start()
    engine = Engine(target, tokenizer, settings, desk)
    engine.start()
    try:
        _await_drafter(engine, desk, kind, max_draft)
        began = time.monotonic()
        answers = _answer(engine, tokenizer, kind, max_draft, prompts, temperature, config.max_tokens)
        seconds = time.monotonic() - began
    finally:
        engine.stop()
        desk.stop()
    plain, looping = Tally(), Tally()
    for answer in answers:
        answer.tally.answers = 1
        is_looping = loop_start(answer.tokens) is not None
        answer.tally.looping = int(is_looping)
        (looping if is_looping else plain).add(answer.tally)
    return Measured(plain, looping, seconds)


def _answer(
    engine: Engine,
    tokenizer: PreTrainedTokenizerBase,
    kind: str,
    max_draft: int,
    prompts: Sequence[Prompt],
    temperature: float,
    max_tokens: int,
) -> list[_Answer]:
    answers = [_Answer() for _ in prompts]
    ended = threading.Semaphore(0)
    errors: list[str] = []
    speculation = Speculation(as_drafter_choice(kind), max_draft, trace=True)
    for index, prompt in enumerate(prompts):

        def sink(emission: Emission, answer: _Answer = answers[index]) -> None:
            answer.add(emission)
            if emission.finish is not None:
                if emission.finish.reason == "error":
                    errors.append(emission.finish.error)
                ended.release()

        sampling = SamplingParams(max_tokens=max_tokens, temperature=temperature, seed=_SEED + index)
        ids = tuple(prompt_ids(tokenizer, prompt))
        engine.submit(Request(f"evaluation-{index}", ids, sampling, speculation, sink))
    for _ in prompts:
        if not ended.acquire(timeout=_TIMEOUT_S):
            raise RuntimeError("the engine does not finish")
    if errors:
        raise RuntimeError(f"a request failed: {errors[0]}")
    return answers


def _await_drafter(engine: Engine, desk: Desk, kind: str, max_draft: int) -> None:
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
        speculation = Speculation(as_drafter_choice(kind), max_draft)
        engine.submit(Request(f"warm-up-{attempt}", prompt, sampling, speculation, sink))
        if not ended.wait(_CONNECT_S):
            break
        if has_drafts[0]:
            return
        attempt += 1
        time.sleep(0.2)
    raise RuntimeError(f"no draft came from the {kind} drafter within {_CONNECT_S:.0f} s: {desk.counters}")
