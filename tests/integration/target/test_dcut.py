"""D-cut in the engine: it decides what is asked and verified, and no text depends on it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from services.dcut.costs.corrected import CorrectedCosts
from services.dcut.costs.steps import StepCosts, StepSample
from services.dcut.local.dcut import LocalDcut
from services.requests.sampling import SamplingParams
from services.requests.speculation import Speculation
from services.target.drafting.interface import DraftSource
from services.target.model.loader import LoadedTarget
from tests.engines import VOCABULARY, Ask, answer_all, answer_tokens, load_tiny, make_tiny_model, running_engine
from tests.unit.target.desks import ErraticDesk, SilentDesk

TABLES = {
    "rows cost nothing": StepCosts(StepSample(rows, 64, 0, 0.01) for rows in (1, 64)),
    "rows cost something": StepCosts(StepSample(rows, 64, 0, 0.02 + 0.001 * rows) for rows in (1, 64)),
    "rows cost everything": StepCosts(StepSample(rows, 64, 0, 0.001 * rows) for rows in (1, 64)),
    "a staircase": StepCosts(StepSample(rows, 64, 0, seconds) for rows, seconds in ((1, 0.01), (8, 0.01), (9, 0.03))),
}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> LoadedTarget:
    return load_tiny(make_tiny_model("llama", tmp_path_factory.mktemp("llama") / "model"), "bf16")


def prompts() -> list[tuple[int, ...]]:
    rng = random.Random(1)
    return [tuple(rng.randrange(VOCABULARY - 3) for _ in range(n)) for n in (1, 5, 17, 40, 65, 130) for _ in range(3)]


def asks(temperature: float) -> list[Ask]:
    return [
        Ask(prompt, SamplingParams(max_tokens=30, temperature=temperature, seed=index))
        for index, prompt in enumerate(prompts())
    ]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("fixed", [True, False], ids=["table", "corrected"])
def test_texts_are_those_without_drafts(
    target: LoadedTarget, temperature: float, fixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fixed:
        monkeypatch.setattr(CorrectedCosts, "observe", lambda *of: None)
    with running_engine(target, SilentDesk()) as engine:
        expected = answer_tokens(engine, asks(temperature), concurrency=1)
    answers = dict(zip(prompts(), expected, strict=True))
    kept, offered = 0, 0
    for seed, (name, table) in enumerate(TABLES.items()):
        for mode in ("exact", "quarters"):
            desk = ErraticDesk(answers, VOCABULARY, seed)
            settings = {"mode": mode, "first_probe": 2, "last_probe": 8}
            with running_engine(target, desk, table=table, max_step_rows=48, dcut=settings) as engine:
                assert answer_tokens(engine, asks(temperature), concurrency=8) == expected, (name, mode)
                counters = engine.dcut().result(10).counters
            assert counters["failures"] == 0
            assert counters["offered"] > 0, (name, mode)
            kept += counters["kept_tokens"]
            offered += counters["offered_tokens"]
    assert 0 < kept < offered


class Recorder(ErraticDesk):
    """Notes who was asked for how many tokens."""

    def __init__(self, answers: dict[tuple[int, ...], Sequence[int]]) -> None:
        super().__init__(answers, VOCABULARY, seed=1)
        self.asked: list[int] = []

    def source_of(self, sequence: int) -> DraftSource | None:
        return DraftSource("erratic", False, 6)

    def ask(self, sequences: Sequence[tuple[int, int]]) -> None:
        self.asked += [count for _, count in sequences]
        super().ask(sequences)


@pytest.mark.parametrize("mode", ["off", "quarters", "exact"])
def test_the_clients_bounds_hold_in_every_mode(target: LoadedTarget, mode: str) -> None:
    def asked(speculation: Speculation, **sampling: int) -> list[int]:
        desk = Recorder({})
        params = SamplingParams(**{"max_tokens": 20, "temperature": 0.0, **sampling})  # type: ignore[arg-type]
        with running_engine(target, desk, table=TABLES["rows cost nothing"], dcut={"mode": mode}) as engine:
            answer_all(engine, [Ask((5, 6, 7), params, speculation)])
        return desk.asked

    assert asked(Speculation("none")) == []
    assert asked(Speculation(max_draft_tokens=0)) == []
    assert max(asked(Speculation(max_draft_tokens=2))) == 2
    assert 2 < max(asked(Speculation())) <= 6  # the drafter's own bound
    assert max(asked(Speculation(max_draft_tokens=16), max_tokens=4)) == 2  # one is out, one is the bonus


@pytest.mark.parametrize("method", ["keep", "ask", "observe_verified"])
def test_a_decision_that_fails_costs_drafts_alone(
    target: LoadedTarget, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_engine(target, SilentDesk()) as engine:
        expected = answer_tokens(engine, asks(0.0), concurrency=1)
    calls = 0
    original = getattr(LocalDcut, method)

    def breaks_now_and_then(*of: object) -> object:
        nonlocal calls
        calls += 1
        if calls % 3 == 0:
            raise ZeroDivisionError("a mistake in the decision")
        return original(*of)

    monkeypatch.setattr(LocalDcut, method, breaks_now_and_then)
    desk = ErraticDesk(dict(zip(prompts(), expected, strict=True)), VOCABULARY, seed=4)
    with running_engine(target, desk, dcut={"mode": "exact"}) as engine:
        assert answer_tokens(engine, asks(0.0), concurrency=8) == expected
        assert engine.dcut().result(10).counters["failures"] > 0


def test_step_times_are_measured_and_found_again(target: LoadedTarget, tmp_path: Path) -> None:
    from services.target.config import EngineConfig
    from services.target.step_table import step_table

    folder = make_tiny_model("llama", tmp_path / "model")
    config = EngineConfig.model_validate({"kv_memory_mb": 16, "max_step_rows": 64, "max_sequences": 4})
    table = step_table(target, folder, config, tmp_path)
    assert table is not None
    assert table.max_rows == 64
    assert {(s.context, s.prefill) for s in table.samples} >= {(256, 0), (256, 16)}
    again = step_table(target, folder, config, tmp_path)
    assert again is not None
    assert again.samples == table.samples
    for off in ({"mode": "off"}, {"profile": False}):
        assert step_table(target, folder, EngineConfig.model_validate({"dcut": off}), tmp_path) is None
