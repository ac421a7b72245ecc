"""One pipeline for plain and speculative decoding: from the logits of a row to its token.

A row's token depends on its logits, on the tokens before it and on its
position's noise; the drafts decide only which rows are looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from services.requests.sampling import MAX_BAD_WORD_TOKENS, SamplingParams
from services.sampling.choice import Search, greedy, near_best, sample
from services.target.grammar.state import GrammarState
from services.target.sampling import processors


@dataclass(slots=True)
class SamplingState:
    """What the pipeline must know of one sequence, kept up to date as tokens are committed."""

    params: SamplingParams
    key: int
    prompt_ids: frozenset[int]
    ending_ids: tuple[int, ...]  # forbidden until min_tokens have been produced
    grammar: GrammarState | None = None
    output: list[int] = field(default_factory=list)
    counts: Counter[int] = field(default_factory=Counter)

    def commit(self, token: int) -> None:
        self.output.append(token)
        if self.params.has_penalties:
            self.counts[token] += 1
        if self.grammar is not None:
            self.grammar.commit(token)

    @property
    def is_plain_argmax(self) -> bool:
        """Whether the most likely token of the raw logits is the answer."""
        p = self.params
        is_changed = p.has_penalties or p.logit_bias or p.bad_words or len(self.output) < p.min_tokens
        return p.is_greedy and not is_changed and self.grammar is None


@dataclass(frozen=True, slots=True)
class Rows:
    """The logit rows of one sequence: after the committed tokens, and after each draft token."""

    state: SamplingState
    first: int  # index of the first row in logits_QV
    first_position: int  # of the token that the first row chooses
    drafts: Sequence[int]  # row j + 1 follows drafts[: j + 1]


def choose_tokens(logits_QV: torch.Tensor, batch: Sequence[Rows], search: Search = near_best) -> list[list[int]]:
    """The target's token at every row, sequence by sequence; none for a grammar that cannot go on."""
    likeliest = greedy(logits_QV).tolist() if any(rows.state.is_plain_argmax for rows in batch) else []
    chosen = []
    for rows in batch:
        end = rows.first + len(rows.drafts) + 1
        if rows.state.is_plain_argmax:
            chosen.append(likeliest[rows.first : end])
        else:
            chosen.append(_choose_rows(logits_QV[rows.first : end], rows, search))
    return chosen


def _choose_rows(logits_RV: torch.Tensor, rows: Rows, search: Search) -> list[int]:
    tokens: list[int] = []
    for row in range(len(rows.drafts) + 1):
        drafts = rows.drafts[:row]
        if row and tokens[-1] != drafts[-1]:
            break  # the rows after a rejected draft follow a text that will not be
        token = _choose(logits_RV[row], rows.state, drafts, rows.first_position + row, search)
        if rows.state.grammar is not None and rows.state.grammar.failure:
            break  # what has been chosen stands, as it would without drafts
        tokens.append(token)
    return tokens


def _choose(logits_V: torch.Tensor, state: SamplingState, drafts: Sequence[int], position: int, search: Search) -> int:
    params = state.params
    raw_V = logits_V
    logits_V = process(raw_V.clone(), state, drafts)
    if state.grammar is not None:
        logits_V = processors.keep_only(logits_V, raw_V, state.grammar.allowed(drafts))
    if params.is_greedy:
        return int(greedy(logits_V))
    logits_V /= params.temperature
    ids_M = processors.survivors(logits_V, params.min_p, params.top_k, params.top_p)
    logits_M = logits_V if ids_M.shape == logits_V.shape else logits_V[ids_M]
    return sample(logits_M, ids_M, state.key, position, search)


def process(logits_V: torch.Tensor, state: SamplingState, drafts: Sequence[int]) -> torch.Tensor:
    """Bias, forbidden tokens and penalties, in place, counting the drafts as output."""
    params = state.params
    if params.logit_bias:
        processors.add_bias(logits_V, params.logit_bias)
    if len(state.output) + len(drafts) < params.min_tokens and state.ending_ids:
        processors.forbid(logits_V, state.ending_ids)
    if params.bad_words:
        banned = processors.banned_next(params.bad_words, [*state.output[-MAX_BAD_WORD_TOKENS:], *drafts])
        if banned:
            processors.forbid(logits_V, banned)
    if params.has_penalties:
        counts = state.counts + Counter(drafts)
        processors.penalise(
            logits_V,
            state.prompt_ids,
            counts,
            params.repetition_penalty,
            params.presence_penalty,
            params.frequency_penalty,
        )
    return logits_V
