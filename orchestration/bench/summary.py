"""Figures of a load, from the records of its requests."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict

from orchestration.bench.objective import is_met
from orchestration.bench.record import Record

BURSTS = (
    "itl: inter-token latency between the arrivals of neighbouring tokens. Tokens that arrive in one message share its "
    "arrival, so all but the first of them count as 0; tpot spreads them, and icl is between messages."
)
METHOD = (
    "Latencies count from when a request was due. ttft: time to first token. tpot: time per output token, (last - "
    f"first arrival) / (tokens - 1) of each answer. {BURSTS} e2el: end-to-end latency. delay: from the engine's time "
    "stamp of a token to its arrival, where the server stamps and its clock is this one. Over OpenAI's HTTP the "
    "tokens of one message are not told: their number is taken from the answer's usage, which gives the same "
    "distribution of itl; without usage each message counts as a token, and the summary says so. Throughputs are over "
    "the time from the first request to the end of the last answer, of answers that came to their end. Warm-up "
    "requests are in no figure."
)
ACCEPTED_LENGTH = (
    "accepted length = tokens emitted in decode rounds / decode rounds (bonus token included, the prefill's token in "
    "neither, rounds without drafts in both), over all answers, as the server tells them"
)


class _Figures(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Distribution(_Figures):
    """Of latencies in milliseconds. Percentiles are interpolated linearly."""

    count: int
    mean: float
    std: float
    min: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


class Drafting(_Figures):
    """What speculation did, summed over answers."""

    num_rounds: int
    num_round_tokens: float
    num_drafts: int
    num_draft_tokens: int
    num_accepted_tokens: int
    answers_by_drafter: dict[str, int]

    @property
    def accepted_length(self) -> float:
        return self.num_round_tokens / self.num_rounds if self.num_rounds else math.nan

    @property
    def acceptance(self) -> float:
        """Share of verified draft tokens that were accepted."""
        return self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens else math.nan


class Summary(_Figures):
    """One load, or several of the same kind taken together. Latencies in milliseconds, throughputs a second."""

    requests: int
    completed: int
    errors: dict[str, int]  # by kind
    error_texts: dict[str, str]  # the first of each kind
    duration_s: float
    prompt_tokens: int
    cached_prompt_tokens: int
    output_tokens: int
    are_tokens_told: bool
    finishes: dict[str, int]
    request_throughput: float
    output_throughput: float
    total_throughput: float  # prompt and output tokens
    goodput: float | None  # answers within the latency objective a second
    good_share: float | None  # of all requests
    mean_concurrency: float
    send_lag: Distribution | None  # from due to sent: of the generator itself, and of a bound on its concurrency
    ttft: Distribution | None
    tpot: Distribution | None
    itl: Distribution | None
    icl: Distribution | None
    e2el: Distribution | None
    delay: Distribution | None
    drafting: Drafting | None


def summarise(runs: Sequence[Sequence[Record]], limits_ms: Mapping[str, float]) -> Summary:
    """Of one run or of several alike, whose durations are added. Raises ValueError without a record."""
    records = [record for run in runs for record in run]
    if not records:
        raise ValueError("records: there is none; a load sends at least one request")
    duration = sum(max(r.ended for r in run) - min(r.due for r in run) for run in runs if run)
    good = [record for record in records if record.is_ok]
    met = sum(is_met(record, limits_ms) for record in records) if limits_ms else None
    prompt_tokens = sum(record.prompt_tokens for record in good)
    output_tokens = sum(record.num_tokens for record in good)
    errors = [record for record in records if not record.is_ok]
    return Summary(
        requests=len(records),
        completed=len(good),
        errors=dict(Counter(record.error for record in errors)),
        error_texts={record.error: record.error_text for record in reversed(errors)},
        duration_s=duration,
        prompt_tokens=prompt_tokens,
        cached_prompt_tokens=sum(record.cached_prompt_tokens for record in good),
        output_tokens=output_tokens,
        are_tokens_told=all(record.are_tokens_told for record in good),
        finishes=dict(Counter(record.finish for record in good)),
        request_throughput=_rate(len(good), duration),
        output_throughput=_rate(output_tokens, duration),
        total_throughput=_rate(prompt_tokens + output_tokens, duration),
        goodput=None if met is None else _rate(met, duration),
        good_share=None if met is None else met / len(records),
        mean_concurrency=_rate(sum(record.ended - record.sent for record in records), duration),
        send_lag=distribution(record.sent - record.due for record in records),
        ttft=distribution(record.ttft for record in good),
        tpot=distribution(record.tpot for record in good),
        itl=distribution(value for record in good for value in record.itl),
        icl=distribution(value for record in good for value in record.icl),
        e2el=distribution(record.e2el for record in good),
        delay=distribution(value for record in good for value in record.delays),
        drafting=_drafting(good),
    )


def distribution(seconds: Iterable[float | None]) -> Distribution | None:
    """In milliseconds; None without a value."""
    values = np.array([value for value in seconds if value is not None], dtype=np.float64) * 1e3
    if not values.size:
        return None
    p50, p90, p95, p99 = (float(value) for value in np.percentile(values, (50, 90, 95, 99)))
    return Distribution(
        count=int(values.size),
        mean=float(values.mean()),
        std=float(values.std()),
        min=float(values.min()),
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
        max=float(values.max()),
    )


def _drafting(records: Sequence[Record]) -> Drafting | None:
    """None where the server tells nothing."""
    told = [record.speculation for record in records if record.speculation is not None]
    if not told:
        return None
    return Drafting(
        num_rounds=sum(one.num_rounds for one in told),
        num_round_tokens=sum(one.num_round_tokens for one in told),
        num_drafts=sum(one.num_drafts for one in told),
        num_draft_tokens=sum(one.num_draft_tokens for one in told),
        num_accepted_tokens=sum(one.num_accepted_tokens for one in told),
        answers_by_drafter=dict(Counter(one.drafter for one in told)),
    )


def _rate(amount: float, seconds: float) -> float:
    return amount / seconds if seconds > 0 else 0.0
