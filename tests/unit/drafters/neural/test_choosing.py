"""A draft is the target's own choice wherever draft and target agree, at every temperature."""

from __future__ import annotations

import pytest
import torch

from services.drafters.drafter import Opening
from services.drafters.neural.choosing import choose
from services.requests.sampling import SamplingParams
from services.target.sampling.pipeline import Rows, SamplingState, choose_tokens

VOCABULARY = 500
KEY = 987654321


def target_choice(logits_V: torch.Tensor, params: SamplingParams, position: int) -> int:
    state = SamplingState(params, KEY, frozenset(), ())
    return choose_tokens(logits_V[None], [Rows(state, 0, position, ())])[0][0]


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(0.0, 0, 1.0), (1.0, 0, 1.0), (0.6, 0, 1.0), (1.0, 20, 1.0), (1.0, 0, 0.9), (1.3, 40, 0.8), (2.0, 1, 1.0)],
)
def test_the_same_logits_give_the_target_s_token(temperature: float, top_k: int, top_p: float) -> None:
    generator = torch.Generator().manual_seed(1)
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, seed=1, max_tokens=9)
    opening = Opening(1, temperature, KEY, top_k, top_p)
    logits = 4 * torch.randn(200, VOCABULARY, generator=generator)
    found, shares = choose(logits, [opening] * 200, range(200), torch.arange(VOCABULARY))
    wanted = [target_choice(row, params, position) for position, row in enumerate(logits)]
    assert found == wanted
    assert all(0.0 < share <= 1.0 for share in shares)


def test_a_reduced_vocabulary_gives_it_where_it_has_it() -> None:
    """The noise goes by the target's ids; so does the choice among equals."""
    generator = torch.Generator().manual_seed(2)
    d2t = torch.arange(0, VOCABULARY, 3)
    logits = torch.full((300, VOCABULARY), -20.0)
    logits[:, d2t] = 3 * torch.randn(300, len(d2t), generator=generator)
    params = SamplingParams(temperature=1.0, seed=1, max_tokens=9)
    found, _ = choose(logits[:, d2t], [Opening(1, 1.0, KEY, 0, 1.0)] * 300, range(300), d2t)
    assert found == [target_choice(row, params, position) for position, row in enumerate(logits)]
    ties = torch.zeros(1, len(d2t))
    ties[0, [40, 70, 9]] = 1.0
    assert choose(ties, [Opening(1, 0.0, KEY, 0, 1.0)], [3], d2t)[0] == [27]


def test_the_share_is_the_probability_of_what_was_chosen() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0, -1.0]])
    (token,), (share,) = choose(logits, [Opening(1, 0.0, KEY, 0, 1.0)], [3], torch.arange(4))
    assert (token, share) == (1, pytest.approx(float(logits.softmax(-1)[0, 1])))
    for position in range(20):
        (token,), (share,) = choose(logits, [Opening(1, 0.5, KEY, 2, 1.0)], [position], torch.arange(4))
        assert token in (1, 2)
        assert share == pytest.approx(float((logits[0, 1:3] / 0.5).softmax(-1)[token - 1]))
