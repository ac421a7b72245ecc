from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from services.requests.sampling import SamplingParams
from services.sampling.noise import noise_key
from services.target.sampling.pipeline import Rows, SamplingState, choose_tokens, process

VOCABULARY = 12
EOS = 11
TOKENS = st.integers(0, VOCABULARY - 1)


@st.composite
def params(draw: st.DrawFn) -> SamplingParams:
    return SamplingParams(
        temperature=draw(st.sampled_from([0.0, 0.7, 1.0, 1e-7])),
        top_k=draw(st.sampled_from([0, 1, 4, 100])),
        top_p=draw(st.sampled_from([1.0, 0.8])),
        min_p=draw(st.sampled_from([0.0, 0.05])),
        repetition_penalty=draw(st.sampled_from([1.0, 1.3, 0.001])),
        presence_penalty=draw(st.sampled_from([0.0, 0.9])),
        frequency_penalty=draw(st.sampled_from([0.0, 0.4])),
        logit_bias=draw(st.dictionaries(TOKENS, st.sampled_from([-100.0, 1.5, 100.0]), max_size=2)),
        bad_words=tuple(draw(st.lists(st.lists(TOKENS, min_size=1, max_size=3).map(tuple), max_size=3))),
        min_tokens=draw(st.integers(0, 6)),
    )


def state_of(sampling: SamplingParams, prompt: list[int], output: list[int], seed: int = 5) -> SamplingState:
    state = SamplingState(sampling, noise_key(seed, 0), frozenset(prompt), (EOS,))
    for token in output:
        state.commit(token)
    return state


def logits_after(text: tuple[int, ...]) -> torch.Tensor:
    """A model in miniature: its row depends on all tokens before."""
    generator = torch.Generator().manual_seed(hash(text) % 2**31)
    return torch.randn(VOCABULARY, generator=generator).mul(3).bfloat16().float()


def choose(state: SamplingState, prompt: list[int], drafts: list[int]) -> list[int]:
    text = (*prompt, *state.output)
    rows = torch.stack([logits_after((*text, *drafts[:n])) for n in range(len(drafts) + 1)])
    return choose_tokens(rows, [Rows(state, 0, len(text), drafts)])[0]


@given(params(), st.lists(TOKENS, min_size=1, max_size=3), st.lists(TOKENS, max_size=3), st.lists(TOKENS, max_size=5))
@settings(max_examples=300)
def test_drafts_are_processed_as_committed_tokens_would_be(
    sampling: SamplingParams, prompt: list[int], output: list[int], drafts: list[int]
) -> None:
    row = logits_after((*prompt, *output))
    drafted = process(row.clone(), state_of(sampling, prompt, output), drafts)
    committed = process(row.clone(), state_of(sampling, prompt, [*output, *drafts]), ())
    assert torch.equal(drafted, committed)


@given(params(), st.lists(TOKENS, min_size=1, max_size=3), st.integers(0, 2**64 - 1), st.data())
@settings(max_examples=150)
def test_a_block_gives_what_plain_decoding_gives(
    sampling: SamplingParams, prompt: list[int], seed: int, data: st.DataObject
) -> None:
    plain = state_of(sampling, prompt, [], seed)
    for _ in range(8):
        plain.commit(choose(plain, prompt, [])[0])
    fast = state_of(sampling, prompt, [], seed)
    while len(fast.output) < 8:
        length = data.draw(st.integers(0, 4))
        drafts = plain.output[len(fast.output) :][:length]
        if drafts and data.draw(st.booleans()):
            drafts[data.draw(st.integers(0, len(drafts) - 1))] = data.draw(TOKENS)
        chosen = choose(fast, prompt, drafts)
        for token, draft in zip(chosen, [*drafts, None], strict=False):
            fast.commit(token)
            if token != draft:
                break
    assert fast.output[:8] == plain.output


def test_a_batch_gives_each_its_own() -> None:
    """Greedy and seeded sequences, with and without drafts, share one tensor of logits."""
    kinds = [
        (SamplingParams(temperature=0.0), [1, 2]),
        (SamplingParams(temperature=1.0), []),
        (SamplingParams(temperature=0.0, min_tokens=1), [3]),
        (SamplingParams(temperature=0.8, top_k=3, presence_penalty=0.5), [4, 5, 6]),
    ]
    rows, batch, alone = [], [], []
    for index, (sampling, drafts) in enumerate(kinds):
        prompt = [index, 7]
        state = state_of(sampling, prompt, [], seed=index)
        batch.append(Rows(state, len(rows), 2, drafts))
        rows += [logits_after((*prompt, *drafts[:n])) for n in range(len(drafts) + 1)]
        alone.append(choose(copy.deepcopy(state), prompt, drafts))
    logits = torch.stack(rows)
    before = logits.clone()
    assert choose_tokens(logits, batch) == alone
    assert torch.equal(logits, before), "log-probabilities are still to be read from these"


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_ending_waits_for_min_tokens_inside_a_block(temperature: float) -> None:
    sampling = SamplingParams(temperature=temperature, min_tokens=3)
    rows = torch.zeros(5, VOCABULARY)
    rows[:, EOS] = 50.0
    rows[:2, 4] = 40.0
    state = state_of(sampling, [1], [4])
    assert choose_tokens(rows, [Rows(state, 0, 2, [4, 4, EOS, 1])])[0][:3] == [4, 4, EOS]


def test_a_bad_word_is_broken_where_output_and_draft_meet() -> None:
    sampling = SamplingParams(temperature=0.0, bad_words=((1, 2, 3),))
    rows = torch.zeros(3, VOCABULARY)
    rows[0, 2] = rows[1, 3] = rows[2, 3] = 9.0
    assert choose_tokens(rows, [Rows(state_of(sampling, [1, 2], [1]), 0, 3, [2])])[0] == [2, 0]
    # The prompt does not count: a word must be the output's own.
    assert choose_tokens(rows[1:2], [Rows(state_of(sampling, [1, 2], []), 0, 2, [])])[0] == [3]


def test_a_single_bad_token_never_comes_first() -> None:
    rows = torch.zeros(1, VOCABULARY)
    rows[0, 5] = 9.0
    sampling = SamplingParams(temperature=0.0, bad_words=((5,),))
    assert choose_tokens(rows, [Rows(state_of(sampling, [1], []), 0, 1, [])])[0] == [0]


def test_rows_after_a_rejected_draft_are_not_chosen() -> None:
    rows = torch.zeros(3, VOCABULARY)
    rows[:, 6] = 60.0
    state = state_of(SamplingParams(), [1], [])
    assert choose_tokens(rows, [Rows(state, 0, 1, [6, 6])])[0] == [6, 6, 6]
    assert choose_tokens(rows, [Rows(state, 0, 1, [3, 6])])[0] == [6]


@pytest.mark.parametrize(
    "changed",
    [
        {"temperature": 0.5},
        {"repetition_penalty": 1.1},
        {"presence_penalty": 0.1},
        {"frequency_penalty": 0.1},
        {"logit_bias": {1: 1.0}},
        {"bad_words": ((1,),)},
        {"min_tokens": 1},
    ],
)
def test_only_untouched_greedy_rows_take_the_short_cut(changed: dict[str, object]) -> None:
    greedy = SamplingParams(temperature=0.0, top_k=3, top_p=0.5, min_p=0.1)
    assert state_of(greedy, [1], []).is_plain_argmax
    assert not state_of(replace(greedy, **changed), [1], []).is_plain_argmax


@pytest.mark.parametrize("temperature", [1e-7, 2.0])
def test_extreme_settings_stay_finite(temperature: float) -> None:
    """A request must not be able to fail a step that others share."""
    sampling = SamplingParams(temperature=temperature, repetition_penalty=0.001, logit_bias={3: 100.0, 4: 100.0})
    rows = torch.randn(1, VOCABULARY, generator=torch.Generator().manual_seed(1)) * 100
    assert choose_tokens(rows, [Rows(state_of(sampling, [3, 4], [4]), 0, 3, [])])[0][0] in range(VOCABULARY)
