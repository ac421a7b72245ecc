"""One engine step: forward pass, choice of tokens, verification, and what is told of it."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerBase

from services.target.counters import EngineCounters
from services.target.drafting.interface import DraftingDesk
from services.target.emission import Emission, Finish, FinishReason, Origin, TokenTrace
from services.target.hidden_feed import HiddenFeed
from services.target.kv.pool import KVPool
from services.target.model.layout import lay_out
from services.target.model.loader import LoadedTarget
from services.target.model.step import Segment
from services.target.sampling.logprobs import TokenLogprobs, token_logprobs
from services.target.sampling.pipeline import Rows, choose_tokens
from services.target.sampling.search import make_search
from services.target.scheduler import Scheduler, Work
from services.target.sequence import Sequence
from services.target.text import StopHit
from services.target.verification import count_accepted


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step gave one sequence. `tokens` are already committed and cut at the end of the answer."""

    sequence: Sequence
    tokens: tuple[int, ...]
    text: str
    time: float
    finish_reason: FinishReason | None
    stop: str  # what ended the answer, or why it was refused
    logprobs: tuple[TokenLogprobs, ...]
    trace: tuple[TokenTrace, ...]
    num_verified: int = 0  # drafts in the step
    num_accepted: int = 0  # of them the target's own choice, past the end of the answer too
    is_round: bool = False  # a decode step, not the prefill's last one


class Stepper:
    def __init__(
        self,
        target: LoadedTarget,
        pool: KVPool,
        tokenizer: PreTrainedTokenizerBase,
        desk: DraftingDesk,
        scheduler: Scheduler,
        hidden_memory_bytes: int,
        counters: EngineCounters,
    ) -> None:
        self._target = target
        self._pool = pool
        self._tokenizer = tokenizer
        self._desk = desk
        self._scheduler = scheduler
        self._counters = counters
        self._search = make_search(target.kernels)
        self._group = target.spec.heads // target.spec.kv_heads
        self._hidden = HiddenFeed(desk, target.spec.layers, hidden_memory_bytes)

    @torch.inference_mode()
    def run(self, plan: list[Work]) -> list[Outcome]:
        """Computes the plan and commits what it decides."""
        capture = self._hidden.begin(work.sequence.id for work in plan)
        segments = [self._segment(work) for work in plan]
        step = lay_out(segments, self._group, self._target.device, capture.layers, capture.postnorm)
        with self._counters.timed(_kind_of_pass(plan)):
            result = self._target.forward.forward(step, self._pool)
        batch, first = [], 0
        for work, segment in zip(plan, segments, strict=True):
            if work.reaches_end:
                last = first + len(segment.logit_rows) - len(work.drafts) - 1
                batch.append(Rows(work.sequence.sampling, last, len(work.sequence.tokens), work.drafts))
            self._record_prompt_logprobs(work, segment, result.logits_QV, first)
            first += len(segment.logit_rows)
        with self._counters.timed("sampling"):
            choices = iter(zip(choose_tokens(result.logits_QV, batch, self._search), batch, strict=True))
        now = time.time()
        features_NTD = None if result.features_NTD is None else result.features_NTD.cpu()
        outcomes = []
        for index, work in enumerate(plan):
            if work.reaches_end:
                chosen, rows = next(choices)
                outcomes.append(self._decide(work, chosen, rows, result.logits_QV, now))
                num_kept = work.count + max(len(outcomes[-1].tokens) - 1, 0)
            else:
                num_kept = work.count
                self._scheduler.commit(work, (), 0)
            # Rows of rejected drafts never reach a drafter.
            sequence, start = work.sequence, step.segment_starts[index]
            rows_RTD = None if features_NTD is None else features_NTD[start : start + num_kept]
            self._hidden.hand_over(sequence.id, sequence.blocks, segments[index].first_position, num_kept, rows_RTD)
        return outcomes

    def catch_up(self, sequence: Sequence, tokens: tuple[int, ...]) -> None:
        """Commits what another replica has emitted. Its text has been told, what it withheld is withheld again."""
        for token in tokens:
            sequence.tokens.append(token)
            sequence.sampling.commit(token)
            self._advance_text(sequence, token)

    def tell(self, outcome: Outcome) -> None:
        """Sends a step's tokens to whoever waits for them."""
        sequence = outcome.sequence
        finish = None
        if outcome.finish_reason is not None:
            is_refused = outcome.finish_reason == "refused"
            stop, error = ("", outcome.stop) if is_refused else (outcome.stop, "")
            finish = self._finish(sequence, outcome.finish_reason, stop, error)
        prompt_logprobs, sequence.prompt_logprobs = tuple(sequence.prompt_logprobs), []
        sequence.request.sink(
            Emission(
                sequence.choice,
                outcome.tokens,
                outcome.text,
                outcome.time,
                outcome.logprobs,
                outcome.trace,
                prompt_logprobs,
                finish,
            )
        )

    def tell_end(self, sequence: Sequence, reason: FinishReason, error: str) -> None:
        """Ends a sequence between steps."""
        finish = self._finish(sequence, reason, "", error)
        sequence.request.sink(Emission(sequence.choice, (), "", time.time(), finish=finish))

    @staticmethod
    def _segment(work: Work) -> Segment:
        sequence, start = work.sequence, work.sequence.num_computed
        tokens = [*sequence.tokens[start : start + work.count], *work.drafts]
        if _wants_prompt_logprobs(sequence):
            logit_rows = range(len(tokens))
        else:
            logit_rows = range(work.count - 1, len(tokens)) if work.reaches_end else range(0)
        return Segment(tokens, start, sequence.blocks, logit_rows)

    def _decide(self, work: Work, chosen: list[int], rows: Rows, logits_QV: torch.Tensor, now: float) -> Outcome:
        sequence = work.sequence
        grammar = sequence.sampling.grammar
        if not chosen:
            assert grammar is not None, "only a grammar can leave nothing to choose"
            self._scheduler.commit(work, (), 0)
            return Outcome(sequence, (), "", now, "refused", grammar.failure, (), ())
        was_decoding = sequence.is_decoding
        accepted = count_accepted(chosen, work.drafts)
        emitted = chosen[: accepted + 1]
        params = sequence.request.sampling
        text, tokens, reason, stop = "", [], None, ""
        logprobs = []
        for offset, token in enumerate(emitted):
            if params.logprobs is not None:
                logprobs.append(token_logprobs(logits_QV[rows.first + offset], token, params.logprobs))
            sequence.sampling.commit(token)
            tokens.append(token)
            piece, reason, stop = self._advance_text(sequence, token)
            text += piece
            if reason is not None:
                break
        self._scheduler.commit(work, tokens, min(accepted, len(tokens) - 1))
        if was_decoding:
            sequence.num_rounds += 1
            sequence.num_round_tokens += len(tokens)
            if work.drafts:
                sequence.num_drafts += 1
                sequence.num_draft_tokens += len(work.drafts)
                sequence.num_accepted_tokens += min(accepted, len(tokens))
                sequence.drafter = self._desk.drafter_of(sequence.id)
        wants_trace = sequence.request.speculation.trace
        trace = _trace(tokens, work.drafts, accepted, sequence.drafter) if wants_trace else ()
        return Outcome(
            sequence,
            tuple(tokens),
            text,
            now,
            reason,
            stop,
            tuple(logprobs),
            trace,
            len(work.drafts),
            accepted,
            was_decoding,
        )

    def _advance_text(self, sequence: Sequence, token: int) -> tuple[str, FinishReason | None, str]:
        """Text that may be shown after one more token, and whether the answer ends with it."""
        params, grammar = sequence.request.sampling, sequence.sampling.grammar
        num_output = len(sequence.sampling.output)
        assert params.max_tokens is not None
        may_stop = num_output >= params.min_tokens
        reason: FinishReason | None = None
        stop = ""
        if may_stop and token in sequence.sampling.ending_ids:
            reason, stop = "stop", str(token) if token in params.stop_token_ids else ""
        elif grammar is not None and grammar.is_complete:
            reason = "stop"
        elif num_output >= params.max_tokens:
            reason = "length"
        piece = sequence.detokenizer.push(token)
        if reason is not None:
            piece += sequence.detokenizer.flush()
        shown = sequence.stops.push(piece)
        if isinstance(shown, StopHit):
            if may_stop:
                return shown.text, "stop", shown.stop
            shown = sequence.stops.flush()
        if reason is not None:
            shown += sequence.stops.flush()
        return shown, reason, stop

    def _record_prompt_logprobs(self, work: Work, segment: Segment, logits_QV: torch.Tensor, first: int) -> None:
        sequence = work.sequence
        count = sequence.request.sampling.prompt_logprobs
        if count is None or sequence.num_output:
            return
        known = len(sequence.prompt_logprobs)  # recomputation after a preemption adds nothing
        for offset in range(len(segment.tokens)):
            position = segment.first_position + offset + 1
            if known < position < sequence.num_prompt:
                logits_V = logits_QV[first + offset]
                sequence.prompt_logprobs.append(token_logprobs(logits_V, sequence.tokens[position], count))

    @staticmethod
    def _finish(sequence: Sequence, reason: FinishReason, stop: str, error: str) -> Finish:
        return Finish(
            reason,
            stop,
            sequence.num_prompt,
            sequence.num_cached,
            sequence.num_output,
            sequence.statistics(),
            error,
        )


def _kind_of_pass(plan: list[Work]) -> str:
    num_decoding = sum(work.sequence.is_decoding for work in plan)
    if not num_decoding:
        return "prefill"
    return "verify" if num_decoding == len(plan) else "mixed"


def _wants_prompt_logprobs(sequence: Sequence) -> bool:
    return sequence.request.sampling.prompt_logprobs is not None and sequence.num_output == 0


def _trace(tokens: list[int], drafts: tuple[int, ...], accepted: int, drafter: str) -> tuple[TokenTrace, ...]:
    if not drafts:
        return tuple(TokenTrace("plain") for _ in tokens)
    origins: list[Origin] = ["accepted" if i < accepted else "bonus" for i in range(len(tokens))]
    return tuple(
        TokenTrace(origin, drafts[accepted:] if i == accepted else (), drafter) for i, origin in enumerate(origins)
    )
