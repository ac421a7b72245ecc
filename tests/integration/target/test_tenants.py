"""Tenants at one engine: taking turns changes no token, and nobody holds the whole queue."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from services.requests.sampling import SamplingParams
from services.requests.speculation import Speculation
from services.target.config import EngineConfig
from services.target.engine import Engine, EngineFull
from services.target.model.loader import LoadedTarget
from services.target.sequence import Request
from tests.engines import (
    TIMEOUT_S,
    VOCABULARY,
    Ask,
    answer_tokens,
    load_tiny,
    make_tiny_model,
    running_engine,
    tiny_tokenizer,
)
from tests.unit.target.desks import ErraticDesk, SilentDesk


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> LoadedTarget:
    folder: Path = make_tiny_model("llama", tmp_path_factory.mktemp("tenants") / "model")
    return load_tiny(folder, "bf16")


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_taking_turns_changes_no_token(target: LoadedTarget, temperature: float) -> None:
    """A flood of one tenant's has every place when the other's come, which makes it give some up."""
    rng = random.Random(2)
    prompts = [tuple(rng.randrange(VOCABULARY - 3) for _ in range(rng.choice((3, 40, 90)))) for _ in range(14)]
    sampling = SamplingParams(max_tokens=80, temperature=temperature, seed=7, ignore_eos=True)
    asks = [Ask(prompt, sampling) for prompt in prompts]
    with running_engine(target, SilentDesk()) as engine:
        expected = answer_tokens(engine, asks, 1)
    flood = [replace(ask, tenant="flood") for ask in asks[:8]]
    others = [replace(ask, tenant=f"other-{number % 2}") for number, ask in enumerate(asks[8:])]
    for desk in (SilentDesk(), ErraticDesk(dict(zip(prompts, expected, strict=True)), VOCABULARY, seed=3)):
        with running_engine(target, desk, max_sequences=4) as engine, ThreadPoolExecutor(1) as pool:
            flooding = pool.submit(answer_tokens, engine, flood)
            end = time.monotonic() + TIMEOUT_S
            while engine.load.num_running < 4:
                assert time.monotonic() < end
                time.sleep(0.001)
            found = answer_tokens(engine, others)
            assert flooding.result() + found == expected
            assert engine.load.num_preemptions > 0


def test_nobody_holds_the_whole_queue(target: LoadedTarget) -> None:
    # Never started, so that whoever is let in stays there.
    engine = Engine(target, tiny_tokenizer(), EngineConfig(max_queue=8, kv_memory_mb=8), SilentDesk())

    def places(tenant: str) -> int:
        for number in range(20):
            sampling = SamplingParams(max_tokens=1, seed=0)
            request = Request(f"{tenant}-{number}", (1, 2), sampling, Speculation(), lambda _: None, tenant=tenant)
            try:
                engine.submit(request)
            except EngineFull:
                return number
        raise AssertionError("it was never full")

    assert [places(tenant) for tenant in ("a", "b", "c", "")] == [4, 2, 1, 1]
