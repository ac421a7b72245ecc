"""The cached, batched serving runtime drafts what the uncached training forward says, position by position."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from services.drafters.dfly.model import DflyModel
from services.drafters.drafter import Drafter, Opening, Proposal, Question
from services.drafters.mtp.model import MtpModel
from services.drafters.neural.choosing import choose
from services.drafters.neural.sessions import NeuralDrafter
from tests.unit.drafters.neural import tiny
from tests.unit.drafters.neural.tiny import Text, ask, dfly_model, mtp_model, opening, serve, start

Model = MtpModel | DflyModel
MODELS: dict[str, Callable[[], Model]] = {
    "mtp": mtp_model,
    "mtp-postnorm": lambda: mtp_model(draft_input_postnorm=True),
    "mtp-qk-norm-bias": lambda: mtp_model(has_qk_norm=True, attention_bias=True),
    "dfly": dfly_model,
    "dfly-qk-norm": lambda: dfly_model(has_qk_norm=True, num_hidden_layers=3),
    "dfly-plain": lambda: dfly_model(enable_hidden_correction=False, enable_layer_fusion=False, mask_token_id=7),
    "dfly-one-layer": lambda: dfly_model(num_hidden_layers=1),
}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Model:
    return MODELS[request.param]()


@pytest.fixture(params=[True, False], ids=["native", "torch"])
def drafter(request: pytest.FixtureRequest, model: Model, tmp_path_factory: pytest.TempPathFactory) -> Drafter:
    cache = Path(tmp_path_factory.getbasetemp()) / "kernels"
    return serve(model, tiny.machine(cache, request.param))


@torch.no_grad()
def expected(model: Model, text: Text, base: int, count: int, how: Opening, first: int = 0) -> Proposal:
    """The draft after tokens[:base] by the training forward alone, one token after the other."""
    tokens, shares = text.tokens[first:base], []
    limit = model.config.num_steps if isinstance(model, MtpModel) else model.config.block_size - 1
    count = min(count, limit)
    at = base - first  # length so far
    for step in range(count):
        padded = tokens + [0] * 16
        length = len(padded)
        tokens_BS = torch.tensor([padded])
        documents = torch.zeros(1, length, dtype=torch.int64)
        positions = torch.arange(first, first + length)[None]
        features = torch.zeros(1, length, *text.features_STD.shape[1:])
        features[0, : at - 1] = text.features_STD[first : base - 1]
        if isinstance(model, MtpModel):
            y = model.train_forward(tokens_BS, features[:, :, 0], step + 1, documents, positions)[step][0, at - 2]
        else:
            _, corrected = model.train_forward(tokens_BS, features, torch.tensor([[at - 1]]), documents, positions)
            y = corrected[0, 0, step]
        (token,), (share,) = choose(model.logits(y)[None].float(), [how], [base + step], model.vocabulary.d2t)
        tokens.append(token)
        shares.append(share)
    return Proposal(tuple(tokens[at:]), tuple(shares))


def same(found: Proposal, wanted: Proposal) -> None:
    assert found.tokens == wanted.tokens
    assert found.probabilities == pytest.approx(wanted.probabilities, abs=1e-4)


def test_drafts_are_those_of_the_training_forward(model: Model, drafter: Drafter) -> None:
    """Round after round with 1 to 4 tokens more, far past the window; sometimes no draft is wanted."""
    text = Text.random(140, tiny.layers_of(model), seed=3)
    start(drafter, 1, text, 5)
    held = 5
    for turn in range(28):
        if turn % 3 != 1:
            same(ask(drafter, 1, held), expected(model, text, held, 16, opening(1)))
        grown = held + 1 + turn % 4
        drafter.append([text.extension(1, held, grown, held - 1)])
        held = grown
    assert held > 3 * model.config.window


def test_a_question_may_be_repeated_and_cut(model: Model, drafter: Drafter) -> None:
    text = Text.random(40, tiny.layers_of(model), seed=4)
    start(drafter, 1, text, 30)
    whole = ask(drafter, 1, 30)
    same(ask(drafter, 1, 30), whole)
    same(ask(drafter, 1, 30, 2), Proposal(whole.tokens[:2], whole.probabilities[:2]))


def test_company_changes_nothing(model: Model, drafter: Drafter) -> None:
    """Mixed lengths and draft lengths, at a temperature and without, more than one batch of them."""
    count = tiny.SETTINGS.max_batch + 2
    texts = [Text.random(120, tiny.layers_of(model), seed=10 + i) for i in range(count)]
    lengths = [3, 17, 90, 26, 61, 33][:count]
    for i, text in enumerate(texts):
        start(drafter, i, text, lengths[i], temperature=0.9 * (i % 2))
    wanted = [1 + i % 4 for i in range(count)]
    found = drafter.draft([Question(i, lengths[i], wanted[i]) for i in range(count)])
    for i, text in enumerate(texts):
        same(found[i], expected(model, text, lengths[i], wanted[i], opening(i, 0.9 * (i % 2))))


@pytest.mark.parametrize("chunks", [1, 5])
def test_a_long_prompt_in_chunks(model: Model, drafter: Drafter, chunks: int) -> None:
    text = Text.random(200, tiny.layers_of(model), seed=5)
    drafter.open([opening(1)])
    drafter.catch_up([text.extension(1, 0, 200, 0, chunks=chunks)])
    same(ask(drafter, 1, 200), expected(model, text, 200, 16, opening(1)))


def test_catching_up_from_a_window(model: Model, drafter: Drafter) -> None:
    """After rounds that nobody told it of, the newest window at absolute positions is enough."""
    text = Text.random(150, tiny.layers_of(model), seed=6)
    start(drafter, 1, text, 20)
    ask(drafter, 1, 20)
    window = model.config.window
    drafter.catch_up([text.extension(1, 99 - window, 100, 99 - window)])
    same(ask(drafter, 1, 100), expected(model, text, 100, 16, opening(1)))
    # With less than a window, what it has is all that it sees.
    drafter.catch_up([text.extension(1, 110, 120, 110)])
    same(ask(drafter, 1, 120), expected(model, text, 120, 16, opening(1), first=110))
    drafter.append([text.extension(1, 120, 124, 119)])
    same(ask(drafter, 1, 124), expected(model, text, 124, 16, opening(1), first=110))


def test_past_the_last_position_there_is_no_draft(model: Model, drafter: Drafter) -> None:
    text = Text.random(300, tiny.layers_of(model), seed=7)
    limit = model.config.max_position_embeddings
    start(drafter, 1, text, limit - 2, first=200)
    assert len(ask(drafter, 1, limit - 2).tokens) == 2
    drafter.append([text.extension(1, limit - 2, limit, limit - 3)])
    assert ask(drafter, 1, limit).tokens == ()
    drafter.append([text.extension(1, limit, limit + 3, limit - 1)])
    assert ask(drafter, 1, limit + 3).tokens == ()


def test_hidden_states_that_are_not_finite_cost_their_sequence_alone(model: Model, drafter: Drafter) -> None:
    good, bad = (Text.random(60, tiny.layers_of(model), seed=seed) for seed in (8, 9))
    bad.features_STD[30] = float("nan")
    start(drafter, 1, good, 20)
    start(drafter, 2, bad, 25)
    drafter.append([good.extension(1, 20, 40, 19), bad.extension(2, 25, 40, 24)])
    found = drafter.draft([Question(1, 40, 3), Question(2, 40, 3)])
    same(found[0], expected(model, good, 40, 3, opening(1)))
    assert found[1].tokens == ()
    drafter.catch_up([bad.extension(2, 35, 50, 35)])
    same(ask(drafter, 2, 50), expected(model, bad, 50, 16, opening(2), first=35))


def test_memory_is_bounded_and_given_back(model: Model, drafter: Drafter) -> None:
    assert isinstance(drafter, NeuralDrafter)
    pool = drafter._pool
    free = pool.num_free_blocks
    texts = [Text.random(250, tiny.layers_of(model), seed=20 + i) for i in range(8)]
    for i, text in enumerate(texts):  # as many as there is room for, each far longer than its window
        start(drafter, i, text, 40)
        for held in range(40, 240, 4):
            drafter.append([text.extension(i, held, held + 4, held - 1)])
            ask(drafter, i, held + 4)
    assert pool.num_free_blocks > 0
    drafter.close(range(8))
    assert pool.num_free_blocks == free
