"""A prompt found in the prefix cache gets the drafts of one that was computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from services.drafters.config import DrafterConfig
from services.drafters.neural.settings import NeuralSettings
from services.drafters.registry import KINDS, Target
from services.requests.sampling import SamplingParams
from services.requests.speculation import Speculation, as_drafter_choice
from services.target.drafting.config import DraftingConfig
from services.target.drafting.desk import Desk
from services.target.emission import TokenTrace
from services.target.engine import Engine
from services.target.model.loader import LoadedTarget
from tests.engines import VOCABULARY, Ask, answer_all, load_tiny, make_tiny_model, running_engine
from tests.integration.drafting.support import member, serving, until
from tests.unit.drafters.neural.untrained import save_untrained

PROMPT = [(7 * i * i + 3 * i) % 250 for i in range(90)]
OTHER = [(5 * i * i + i) % 250 for i in range(40)]
WINDOW = 48


@dataclass(frozen=True)
class Tiny:
    target: LoadedTarget
    folder: Path
    weights: dict[str, Path]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    folder = make_tiny_model("llama", tmp_path_factory.mktemp("cached") / "tiny")
    weights = save_untrained(folder, folder.parent, window=WINDOW)
    return Tiny(load_tiny(folder, "fp32"), folder, weights)


@contextmanager
def engine_with(tiny: Tiny, kinds: tuple[str, ...], **settings: object) -> Iterator[tuple[Engine, Desk]]:
    with ExitStack() as stack:
        members = []
        for kind in kinds:
            config = DrafterConfig(kind=kind, neural=NeuralSettings(weights=tiny.weights[kind], precision="fp32"))
            drafter = KINDS[kind].build(config, Target(tiny.folder, "tiny", tiny.folder.parent))
            server = stack.enter_context(serving(config, drafter))
            members.append(member(server.address, kind))
        waits = {"min_wait_ms": 5000, "max_wait_ms": 5000, "quiet_ms": 20000, "refresh_s": 0.01, "local_lookup": False}
        drafting = DraftingConfig.model_validate({"kinds": kinds, **waits})
        desk = Desk(drafting, VOCABULARY, tiny.target.spec.hidden, "target-1", lambda: tuple(members))
        desk.start()
        stack.callback(desk.stop)
        engine = stack.enter_context(running_engine(tiny.target, desk, **settings))
        until(lambda: len(desk.features_of_interest()) == len(kinds), "all drafters are connected")
        yield engine, desk


@dataclass(frozen=True)
class Drafted:
    tokens: list[int]
    trace: list[TokenTrace]
    cached: int
    num_drafts: int


def run(engine: Engine, prompt: list[int], drafter: str, seed: int = 5, temperature: float = 0.0) -> Drafted:
    sampling = SamplingParams(max_tokens=24, temperature=temperature, seed=seed, ignore_eos=True)
    speculation = Speculation(as_drafter_choice(drafter), None, True)
    answer = answer_all(engine, [Ask(prompt, sampling, speculation)])[0][0]
    assert answer.finish is not None
    statistics = answer.finish.statistics
    assert statistics.drafter == drafter
    return Drafted(answer.tokens, answer.trace, answer.finish.cached_prompt_tokens, statistics.num_drafts)


@pytest.mark.parametrize("kind", ["mtp", "dfly"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_hit_drafts_as_a_miss(tiny: Tiny, kind: str, temperature: float) -> None:
    with engine_with(tiny, (kind,)) as (engine, _):
        missed = run(engine, PROMPT, kind, temperature=temperature)
        found = run(engine, PROMPT, kind, temperature=temperature)
        assert (missed.cached, found.cached) == (0, 80)
        assert missed.num_drafts > 0
        assert found.tokens == missed.tokens
        assert found.trace == missed.trace, "the same tokens accepted and rejected in every round"
        longer = run(engine, PROMPT + missed.tokens + OTHER[:5], kind)
        assert longer.cached == (len(PROMPT) + len(missed.tokens) - 1) // 16 * 16, "the answer is in the cache too"
    with engine_with(tiny, (kind,)) as (engine, _):
        assert run(engine, PROMPT + missed.tokens + OTHER[:5], kind).trace == longer.trace


def test_whoever_computed_the_prefix(tiny: Tiny) -> None:
    """Without drafts, or for another kind of drafter."""
    with engine_with(tiny, ("mtp", "dfly")) as (engine, _):
        alone = {kind: run(engine, OTHER + PROMPT, kind) for kind in ("mtp", "dfly")}
        assert alone["dfly"].cached > 0, "what dfly was given had been captured for mtp"
    with engine_with(tiny, ("dfly", "mtp")) as (engine, _):
        assert run(engine, OTHER + PROMPT, "none").cached == 0
        for kind in ("dfly", "mtp"):
            found = run(engine, OTHER + PROMPT, kind)
            assert found.cached > 0
            assert found.trace == alone[kind].trace


def test_preempted_sequences_keep_their_drafts(tiny: Tiny) -> None:
    """With KV for two of six sequences, they give way to each other and are computed anew."""
    asks = [
        Ask(
            [(p + i) % 250 for p in PROMPT],
            SamplingParams(max_tokens=40, temperature=0.0, seed=1, ignore_eos=True),
            Speculation(as_drafter_choice("mtp"), None, True),
        )
        for i in range(6)
    ]
    with engine_with(tiny, ("mtp",)) as (engine, _):
        wanted = [answer_all(engine, [ask])[0][0].tokens for ask in asks]
    with engine_with(tiny, ("mtp",), max_step_rows=64) as (engine, _):
        del engine._scheduler.blocks._unused[20:]
        answers = [choices[0] for choices in answer_all(engine, asks)]
        assert [answer.tokens for answer in answers] == wanted
        for answer in answers:
            assert answer.finish is not None
            assert answer.finish.statistics.num_drafts > 0
        assert engine.load.num_preemptions > 0


def test_without_memory_for_them_a_hit_has_less_to_draft_from(tiny: Tiny) -> None:
    """Only so does the first test show anything: the drafts depend on what is kept."""
    with engine_with(tiny, ("dfly",), hidden_memory_mb=0) as (engine, _):
        missed, found = run(engine, PROMPT, "dfly"), run(engine, PROMPT, "dfly")
        assert found.tokens == missed.tokens
        assert found.trace != missed.trace
