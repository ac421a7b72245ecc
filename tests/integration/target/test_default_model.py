"""The default model: the text is transformers' own, whoever drafts and whatever the concurrency.

`--tokens N` sets how far each answer is followed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM

from services.dcut.local.guide import NO_GUIDE, Guide
from services.dcut.local.rechoice import Promise
from services.dcut.messages import Member
from services.drafters.neural.shipped import shipped_weights, target_name
from services.requests.sampling import SamplingParams
from services.requests.speculation import Speculation, as_drafter_choice
from services.target.drafting.config import DraftingConfig
from services.target.drafting.desk import Desk
from services.target.engine import Engine
from services.target.model.loader import LoadedTarget
from tests.engines import Ask, Reference, answer_all, answer_tokens, check_identity, running_engine, transformers_greedy
from tests.integration.drafting.support import DrafterProcess, member
from tests.integration.target.conftest import DefaultModel
from tests.unit.drafters.neural.untrained import save_untrained

CONCURRENCIES = (1, 4, 16)
SWITCH_S = 0.5
REMOTE = {"lookup over gRPC": ("lookup",), "mtp": ("mtp",), "dfly": ("dfly",), "mtp and dfly in turns": ("mtp", "dfly")}
DRAFTERS = ("none", "local lookup", *REMOTE)
NEURAL = ("mtp", "dfly", "mtp and dfly in turns")
# Kinds that run torch take long; one concurrency of theirs shows what the others would.
COMBINATIONS = [
    pytest.param(kind, count, marks=[pytest.mark.long] if count == 4 and kind not in NEURAL else [])
    for kind in DRAFTERS
    for count in CONCURRENCIES
    if kind not in NEURAL or count == 4
]


@pytest.fixture(scope="module")
def num_tokens(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--tokens"))


@pytest.fixture(scope="module")
def drafters(
    default_model: DefaultModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, DrafterProcess]]:
    """With the shipped weights; where there are none, the target's own layers untrained."""
    untrained = save_untrained(default_model.folder, tmp_path_factory.mktemp("untrained"))
    processes = {"lookup": DrafterProcess()}
    for kind in ("mtp", "dfly"):
        weights = shipped_weights(kind, target_name("default")) or untrained[kind]
        processes[kind] = DrafterProcess({"kind": kind, "neural": {"weights": str(weights)}})
    yield processes
    for process in processes.values():
        process.kill()


@contextmanager
def engine_with(
    target: LoadedTarget,
    model: DefaultModel,
    drafters: dict[str, DrafterProcess],
    kind: str,
    mode: str = "off",
    guide: Callable[[], Guide] = lambda: NO_GUIDE,
) -> Iterator[Engine]:
    config = DraftingConfig(local_lookup=kind == "local lookup", min_wait_ms=200.0, max_wait_ms=1000.0)
    members = [member(drafters[name].address, name) for name in REMOTE.get(kind, ())]

    def view() -> tuple[Member, ...]:
        """One after the other, where there are several; all of them when requests are to move by themselves."""
        if guide() is not NO_GUIDE:
            return tuple(members)
        return (members[int(time.monotonic() / SWITCH_S) % len(members)],) if members else ()

    desk = Desk(config, target.spec.vocabulary, target.spec.hidden, "target", view)
    desk.start()
    try:
        with running_engine(
            target, desk, model.tokenizer, guide=guide, kv_memory_mb=512, dcut={"mode": mode}
        ) as engine:
            yield engine
        if kind != "none":
            assert desk.counters.drafts + desk.counters.local_drafts > 0, "nothing was drafted"
    finally:
        desk.stop()


def asks(model: DefaultModel, num_tokens: int, kind: str, temperature: float = 0.0) -> list[Ask]:
    speculation = Speculation(as_drafter_choice("none" if kind == "none" else "auto"))
    return [
        Ask(prompt, SamplingParams(max_tokens=num_tokens, temperature=temperature, seed=index), speculation)
        for index, prompt in enumerate(model.prompts())
    ]


@pytest.fixture(scope="module")
def references(default_model: DefaultModel, num_tokens: int) -> list[Reference]:
    model = AutoModelForCausalLM.from_pretrained(default_model.folder, dtype=torch.float32).eval()
    return [transformers_greedy(model, prompt, num_tokens) for prompt in default_model.prompts()]


@pytest.mark.parametrize(("kind", "concurrency"), COMBINATIONS)
def test_greedy_equals_transformers_generate(
    default_model: DefaultModel,
    drafters: dict[str, DrafterProcess],
    references: list[Reference],
    num_tokens: int,
    kind: str,
    concurrency: int,
) -> None:
    with engine_with(default_model.load("fp32"), default_model, drafters, kind) as engine:
        got = answer_tokens(engine, asks(default_model, num_tokens, kind), concurrency)
    admitted = check_identity(references, got)
    print(f"{kind}, concurrency {concurrency}: {len(got)} prompts, ties admitted: {admitted}")


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_drafts_and_company_change_nothing_in_bf16(
    default_model: DefaultModel, drafters: dict[str, DrafterProcess], num_tokens: int, temperature: float
) -> None:
    target = default_model.load("bf16")
    if target.verdict.exactness != "bitwise":
        pytest.fail(f"bf16 is not bitwise on this machine: {target.verdict.reason}")
    with engine_with(target, default_model, drafters, "none") as engine:
        expected = answer_tokens(engine, asks(default_model, num_tokens, "none", temperature), concurrency=1)
    for kind in DRAFTERS:
        concurrency = 4 if kind in NEURAL else 16  # alone was the reference
        with engine_with(target, default_model, drafters, kind, mode="exact") as engine:
            answers = answer_all(engine, asks(default_model, num_tokens, kind, temperature), concurrency)
        assert [choices[0].tokens for choices in answers] == expected, (kind, concurrency)


def test_a_request_that_moves_to_another_drafter_goes_on_with_the_same_text(
    default_model: DefaultModel, drafters: dict[str, DrafterProcess]
) -> None:
    """The fleet promises much of DFly and little of MTP, which all requests begin with."""
    target, guide = default_model.load("bf16"), moving_to_dfly()
    prompts = [
        Ask(prompt, SamplingParams(max_tokens=96, temperature=temperature, seed=7))
        for prompt in default_model.prompts()[:2]
        for temperature in (0.0, 1.0)
    ]
    plain = [replace(ask, speculation=Speculation("none")) for ask in prompts]
    with engine_with(target, default_model, drafters, "none") as engine:
        expected = answer_tokens(engine, plain, concurrency=2)
    with engine_with(target, default_model, drafters, "mtp and dfly in turns", guide=lambda: guide) as engine:
        answers = answer_all(engine, prompts, concurrency=2)
        switches = engine.dcut().result(10).counters["switches"]
    assert [choices[0].tokens for choices in answers] == expected
    assert switches > 0
    finishes = [choices[0].finish for choices in answers]
    assert any(finish is not None and finish.statistics.drafter == "dfly" for finish in finishes)


def moving_to_dfly() -> Guide:
    classes = ("", "chat", "code", "maths")
    promises = {("mtp", c): Promise(2.0, 1.9) for c in classes} | {("dfly", c): Promise(6.0, 1.1) for c in classes}
    return Guide(promises=promises)
