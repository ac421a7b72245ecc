"""Any causal LM: small random models of several families against transformers' own generate."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from services.requests.sampling import SamplingParams
from services.requests.speculation import Speculation
from services.target.model.loader import LoadedTarget
from tests.engines import (
    FAMILIES,
    VOCABULARY,
    Ask,
    answer_tokens,
    check_identity,
    load_tiny,
    make_tiny_model,
    running_engine,
    transformers_greedy,
)
from tests.unit.target.desks import ErraticDesk, SilentDesk

LENGTHS = (1, 5, 17, 40, 64, 65, 130, 300)
MAX_TOKENS = 40


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(request.param, tmp_path_factory.mktemp(request.param) / "model")


@pytest.fixture(scope="module")
def fp32(folder: Path) -> LoadedTarget:
    return load_tiny(folder, "fp32")


@pytest.fixture(scope="module")
def bf16(folder: Path) -> LoadedTarget:
    return load_tiny(folder, "bf16")


def prompts() -> list[tuple[int, ...]]:
    rng = random.Random(1)
    return [tuple(rng.randrange(VOCABULARY - 3) for _ in range(n)) for n in LENGTHS for _ in range(2)]


def greedy(prompt: tuple[int, ...]) -> Ask:
    return Ask(prompt, SamplingParams(max_tokens=MAX_TOKENS, temperature=0.0))


def test_greedy_equals_transformers_generate(folder: Path, fp32: LoadedTarget) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    expected = [transformers_greedy(model, prompt, MAX_TOKENS) for prompt in prompts()]
    answers = {prompt: reference.tokens for prompt, reference in zip(prompts(), expected, strict=True)}
    for concurrency in (1, 4, 16):
        for desk in (SilentDesk(), ErraticDesk(answers, VOCABULARY, seed=concurrency)):
            with running_engine(fp32, desk, max_step_rows=64) as engine:
                got = answer_tokens(engine, [greedy(p) for p in prompts()], concurrency)
            check_identity(expected, got)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_drafts_change_nothing(bf16: LoadedTarget, temperature: float) -> None:
    if bf16.verdict.exactness != "bitwise":
        pytest.fail(f"bf16 is not bitwise here: {bf16.verdict.reason}")
    asks = [
        Ask(p, SamplingParams(max_tokens=MAX_TOKENS, temperature=temperature, seed=i, top_p=0.9 if i % 2 else 1.0))
        for i, p in enumerate(prompts())
    ]
    with running_engine(bf16, SilentDesk(), prefix_cache=False) as engine:
        alone = answer_tokens(engine, asks, concurrency=1)
    answers = {tuple(ask.prompt): tokens for ask, tokens in zip(asks, alone, strict=True)}
    for seed, concurrency in enumerate((1, 4, 16)):
        desk = ErraticDesk(answers, VOCABULARY, seed)
        with running_engine(bf16, desk, max_step_rows=48) as engine:
            assert answer_tokens(engine, asks, concurrency) == alone
            # Once more, with the prefix cache warm.
            assert answer_tokens(engine, asks, concurrency) == alone
        assert desk.num_given > 0


def test_preemption_changes_nothing(bf16: LoadedTarget) -> None:
    asks = [Ask(p, SamplingParams(max_tokens=MAX_TOKENS, seed=i)) for i, p in enumerate(prompts())]
    with running_engine(bf16, SilentDesk()) as engine:
        expected = answer_tokens(engine, asks)
    with running_engine(bf16, SilentDesk(), kv_memory_mb=8) as engine:
        engine._scheduler.blocks._unused = engine._scheduler.blocks._unused[:40]  # room for about two sequences
        engine._scheduler.blocks.num_blocks = 40
        assert answer_tokens(engine, asks) == expected
        assert engine.load.num_preemptions > 0
        assert engine.load.num_free_blocks == 40


def test_speculation_off_asks_for_nothing(bf16: LoadedTarget) -> None:
    desk = ErraticDesk({}, VOCABULARY, seed=0)
    off = [Speculation("none"), Speculation(max_draft_tokens=0)]
    with running_engine(bf16, desk) as engine:
        answer_tokens(engine, [Ask(prompts()[4], SamplingParams(max_tokens=9), s) for s in off])
    assert desk.num_given == 0
