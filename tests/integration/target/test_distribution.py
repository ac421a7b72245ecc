"""Over seeds, the text is distributed as the target's probabilities say, with drafts, losses and cuts inside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from scipy.stats import chisquare
from transformers import AutoModelForCausalLM

from services.dcut.costs.corrected import CorrectedCosts
from services.dcut.costs.steps import StepCosts, StepSample
from services.dcut.local.calibration import Calibration
from services.requests.sampling import SamplingParams
from services.target.drafting.interface import Guess
from services.target.kv.pool import KVPool
from services.target.model.layout import lay_out
from services.target.model.loader import LoadedTarget
from services.target.model.step import Segment
from tests.engines import VOCABULARY, Ask, answer_tokens, load_tiny, make_tiny_model, running_engine
from tests.integration.target.conftest import DefaultModel
from tests.unit.target.desks import ErraticDesk, SilentDesk

TOP_K = 4
DEPTH = 3
P_VALUE = 1e-4  # seeds are fixed, so a test that passes once passes always

Logits = Callable[[Sequence[int]], torch.Tensor]  # of the token that follows: [vocabulary]


# Rows dear enough that drafts are cut, and asked for all the same.
DEAR_ROWS = StepCosts(StepSample(rows, 64, 0, 0.1 + 0.001 * rows) for rows in (1, 64))


class BiasedDesk(ErraticDesk):
    """Doubts a token for what it is, as a drafter's own probability would: the trap, through the real selection."""

    def take(self, sequence: int) -> Guess | None:
        guess = super().take(sequence)
        if guess is None:
            return None
        return Guess(guess.tokens, tuple(0.05 if token % 3 == 0 else 0.9 for token in guess.tokens))


class CuttingDesk(ErraticDesk):
    """Offers a draft token or not by what it is: the cut that would bias rejection sampling."""

    def take(self, sequence: int) -> Guess | None:
        guess = super().take(sequence)
        if guess is None:
            return None
        kept = next((i for i, token in enumerate(guess.tokens) if token % 3 == 0), len(guess.tokens))
        return Guess(guess.tokens[:kept], guess.probabilities[:kept]) if kept else None


def joint(logits: Logits, prompt: Sequence[int], depth: int, temperature: float) -> dict[tuple[int, ...], float]:
    """Probability of every continuation of `depth` tokens under temperature and top-k."""
    outcomes = {(): 1.0}
    for _ in range(depth):
        longer = {}
        for tokens, mass in outcomes.items():
            # Stable: of equal logits, which bf16 has many of, the lowest ids are the top ones.
            values, ids = (logits([*prompt, *tokens]).double() / temperature).sort(descending=True, stable=True)
            for token, p in zip(ids[:TOP_K].tolist(), values[:TOP_K].softmax(-1).tolist(), strict=True):
                longer[(*tokens, token)] = mass * p
        outcomes = longer
    return outcomes


def check(expected: dict[tuple[int, ...], float], seen: Counter[tuple[int, ...]]) -> None:
    total = seen.total()
    assert not set(seen) - set(expected), "a text of probability 0"
    frequent = [outcome for outcome, p in expected.items() if p * total >= 5]
    observed = [seen[outcome] for outcome in frequent]
    wanted = [expected[outcome] * total for outcome in frequent]
    rest = total - sum(wanted)
    if rest >= 5:
        observed.append(total - sum(observed))
        wanted.append(rest)
    scale = sum(observed) / sum(wanted)
    assert chisquare(observed, [w * scale for w in wanted]).pvalue > P_VALUE


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model("llama", tmp_path_factory.mktemp("llama") / "model", seed=3)


@pytest.mark.parametrize("desk_class", [ErraticDesk, CuttingDesk])
def test_enumerated_on_a_small_model(folder: Path, desk_class: type[ErraticDesk]) -> None:
    prompt, temperature, num_seeds = (7, 8, 9), 2.0, 6000
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.inference_mode()
    def logits(tokens: Sequence[int]) -> torch.Tensor:
        return model(torch.tensor([tokens])).logits[0, -1]

    expected = joint(logits, prompt, DEPTH, temperature)
    likely = sorted({token for outcome in expected for token in outcome})
    desk = desk_class({}, VOCABULARY, seed=1, likely=likely)
    target = load_tiny(folder, "fp32")
    with running_engine(target, desk) as engine:
        got = answer_tokens(
            engine,
            [
                Ask(prompt, SamplingParams(DEPTH, temperature, TOP_K, seed=seed, ignore_eos=True))
                for seed in range(num_seeds)
            ],
            concurrency=16,
        )
    assert desk.num_given > num_seeds / 4
    check(expected, Counter(tuple(tokens) for tokens in got))


@pytest.mark.parametrize("mode", ["exact", "quarters"])
def test_enumerated_with_the_real_selection(folder: Path, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Doubts stay what the drafter says, and times what the table says: so cuts depend on the tokens to the end.
    monkeypatch.setattr(Calibration, "observe", lambda *of: None)
    monkeypatch.setattr(CorrectedCosts, "observe", lambda *of: None)
    prompt, temperature, num_seeds = (7, 8, 9), 2.0, 6000
    target = load_tiny(folder, "fp32")
    expected = joint(own_logits(target), prompt, DEPTH, temperature)
    desk = BiasedDesk({}, VOCABULARY, seed=1, likely=sorted({token for outcome in expected for token in outcome}))
    with running_engine(target, desk, table=DEAR_ROWS, dcut={"mode": mode}) as engine:
        got = answer_tokens(
            engine,
            [
                Ask(prompt, SamplingParams(DEPTH, temperature, TOP_K, seed=seed, ignore_eos=True))
                for seed in range(num_seeds)
            ],
            concurrency=16,
        )
        counters = engine.dcut().result(10).counters
    assert 0.1 < counters["kept_tokens"] / counters["offered_tokens"] < 0.9
    assert counters["failures"] == 0
    check(expected, Counter(tuple(tokens) for tokens in got))


def test_chi_square_on_the_default_model(default_model: DefaultModel) -> None:
    num_seeds, temperature = 1200, 1.0
    target = default_model.load("bf16")
    prompt = default_model.prompts()[9]
    expected = joint(own_logits(target), prompt, 2, temperature)
    likely = sorted({token for outcome in expected for token in outcome})
    desk = CuttingDesk({}, target.spec.vocabulary, seed=2, likely=likely)
    asks = [Ask(prompt, SamplingParams(4, temperature, TOP_K, seed=seed, ignore_eos=True)) for seed in range(num_seeds)]
    with running_engine(target, desk, default_model.tokenizer) as engine:
        got = answer_tokens(engine, asks, concurrency=16)
    assert desk.num_given > num_seeds / 4
    check(expected, Counter(tuple(tokens[:2]) for tokens in got))
    with running_engine(target, SilentDesk(), default_model.tokenizer) as engine:
        assert answer_tokens(engine, asks[:60], concurrency=1) == got[:60], "drafts, cuts or company changed a text"


def own_logits(target: LoadedTarget) -> Logits:
    """By the engine's forward pass, which the identity suite compares with transformers'."""
    spec = target.spec
    pool = KVPool(spec, 16, target.dtype, target.device)

    @torch.inference_mode()
    def logits(tokens: Sequence[int]) -> torch.Tensor:
        segment = Segment(tokens, 0, range(16), (len(tokens) - 1,))
        step = lay_out([segment], spec.heads // spec.kv_heads, target.device)
        return target.forward.forward(step, pool).logits_QV[0]

    return logits
