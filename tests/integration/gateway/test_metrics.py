"""Every total of the fleet, after a load whose answers tell the same numbers one by one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc.aio
import httpx
import pytest
import pytest_asyncio

from protos import generation_pb2 as pb
from protos.generation_pb2_grpc import GenerationStub
from services.metrics.catalogue import METRICS
from tests.integration.gateway.conftest import Service, running
from tests.metric_samples import Samples, fallen, fetched, total

pytestmark = pytest.mark.asyncio(loop_scope="module")


REPEATING = "one two three four one two three four one two three four one two"
# Only what goes wrong moves these; tests of their own make it go wrong. `probes` and the like need D-cut to decide.
OF_FAILURES = {
    "draftfleet_draft_faults",
    "draftfleet_draft_probes",
    "draftfleet_drafter_bad_frames",
    "draftfleet_drafter_catch_ups",
    "draftfleet_drafter_dropped_frames",
    "draftfleet_drafter_drafts_shed",
    "draftfleet_drafter_failed_batches",
    "draftfleet_drafter_faults",
    "draftfleet_drafter_sessions_evicted",
    "draftfleet_drafter_sessions_lost",
    "draftfleet_drafts_not_asked",
    "draftfleet_draft_tokens_cut",
    "draftfleet_drafts_wholly_cut",
    "draftfleet_dcut_failures",
    "draftfleet_failed_reservations",
    "draftfleet_failed_routes",
    "draftfleet_failed_steps",
    "draftfleet_fleet_link_failures",
    "draftfleet_preemptions",
    "draftfleet_refused_reports",
    "draftfleet_replicas_left",
    "draftfleet_resumes",
    "draftfleet_request_retries",
    "draftfleet_target_attempts_lost",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(folder: Path) -> AsyncIterator[Service]:
    async with running(folder) as ready:
        yield ready


@dataclass
class Told:
    """What the answers said, added up."""

    requests: int = 0
    drafted_requests: int = 0
    tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    rounds: int = 0
    round_tokens: float = 0.0
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    accepted_at: Counter[int] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    choices: int = 0

    def add(self, request: pb.GenerateRequest, chunks: list[pb.GenerateChunk]) -> None:
        self.requests += 1
        self.drafted_requests += request.speculation.drafter != "none"
        for chunk in chunks:
            self.tokens += len(chunk.token_ids)
            for position, token in enumerate(chunk.trace):
                self.accepted_at[position] += token.origin == pb.ORIGIN_ACCEPTED
            if chunk.finish_reason:
                self.choices += 1
                self.reasons[pb.FinishReason.Name(chunk.finish_reason).removeprefix("FINISH_REASON_").lower()] += 1
                self.prompt_tokens += chunk.usage.prompt_tokens
                self.cached_tokens += chunk.usage.cached_prompt_tokens
                stats = chunk.speculation
                self.rounds += stats.num_rounds
                self.round_tokens += stats.accepted_length * stats.num_rounds
                self.drafts += stats.num_drafts
                self.draft_tokens += stats.num_draft_tokens
                self.accepted_tokens += stats.num_accepted_tokens


def requests() -> list[pb.GenerateRequest]:
    asked = []
    for number, drafter in enumerate(("auto", "lookup", "none", "mtp", "auto")):
        sampling = pb.Sampling(max_tokens=40 + number, temperature=0.0 if number % 2 == 0 else 0.7, seed=number)
        sampling.n = 2 if number == 1 else 1
        if number < 2:  # these repeat themselves, so that lookup is right
            sampling.logit_bias[65] = sampling.logit_bias[66] = 50.0
        speculation = pb.Speculation(drafter=drafter, trace=True)
        prompt = REPEATING if number < 3 else f"{number} {REPEATING}"
        asked.append(pb.GenerateRequest(model="tiny", text=prompt, sampling=sampling, speculation=speculation))
    return asked


async def load(service: Service) -> Told:
    told = Told()
    async with grpc.aio.insecure_channel(service.grpc_address) as channel:

        async def ask(request: pb.GenerateRequest) -> None:
            told.add(request, [chunk async for chunk in GenerationStub(channel).Generate(request)])

        await asyncio.gather(*(ask(request) for request in requests()))
        await ask(requests()[0])  # its prompt is known by now
    return told


def check(samples: Samples, told: Told) -> None:
    def one(name: str, **labels: str) -> float:
        return total(samples, name, **labels)

    assert one("draftfleet_requests_total", outcome="finished") == told.requests == one("draftfleet_requests_total")
    assert one("draftfleet_choices_total") == told.choices
    for reason, count in told.reasons.items():
        assert one("draftfleet_choices_total", finish_reason=reason) == count
        assert one("vllm:request_success_total", finished_reason=reason) == count
    for name in ("draftfleet_generated_tokens_total", "vllm:generation_tokens_total"):
        assert one(name) == told.tokens
    for name in ("draftfleet_prompt_tokens_total", "vllm:prompt_tokens_total", "vllm:prefix_cache_queries_total"):
        assert one(name) == told.prompt_tokens
    for name in ("draftfleet_cached_prompt_tokens_total", "vllm:prefix_cache_hits_total"):
        assert one(name) == told.cached_tokens
    assert one("draftfleet_decode_rounds_total") == told.rounds
    assert one("draftfleet_decode_tokens_total") == pytest.approx(told.round_tokens)
    assert one("draftfleet_decode_tokens_total") == told.tokens - told.choices  # but for the prefill's
    for prefix, drafter in (("draftfleet_", {"drafter": "lookup"}), ("vllm:spec_decode_num_", {})):
        assert one(f"{prefix}drafts_total", **drafter) == told.drafts
        assert one(f"{prefix}draft_tokens_total", **drafter) == told.draft_tokens
        assert one(f"{prefix}accepted_tokens_total", **drafter) == told.accepted_tokens
    for position in range(16):
        at = {"position": str(position)}
        assert one("draftfleet_accepted_tokens_per_position_total", **at) == told.accepted_at[position]
        assert one("vllm:spec_decode_num_accepted_tokens_per_pos_total", **at) == told.accepted_at[position]
    assert one("draftfleet_draft_tokens_per_position_total") == told.draft_tokens
    assert one("draftfleet_draft_tokens_per_position_total", position="0") == told.drafts
    # A step's rows: an anchor a round, and the drafts; prompts but for what the cache held.
    assert one("draftfleet_decode_rows_total") == told.rounds + told.draft_tokens
    assert one("draftfleet_prompt_rows_total") == told.prompt_tokens - told.cached_tokens

    assert one("draftfleet_time_to_first_token_seconds_count") == told.requests
    assert one("draftfleet_request_seconds_count") == told.requests
    assert one("draftfleet_inter_token_latency_seconds_count") == told.tokens - told.choices
    assert one("draftfleet_inter_token_latency_seconds_sum") > 0

    assert one("draftfleet_routes_total") == one("draftfleet_route_seconds_count") == told.drafted_requests
    assert one("draftfleet_routes_total", asked="mtp", drafter="lookup") == one("draftfleet_routes_total", asked="mtp")

    drafted = one("draftfleet_draft_answers_total", outcome="drafted")
    assert drafted >= one("draftfleet_drafts_offered_total") >= told.drafts
    assert one("draftfleet_drafter_drafts_total", drafter="lookup") >= drafted
    assert one("draftfleet_drafter_asks_total") == one("draftfleet_drafts_asked_total")
    offered = one("draftfleet_draft_tokens_offered_total")
    kept = one("draftfleet_draft_tokens_kept_total")
    assert offered == kept + one("draftfleet_draft_tokens_cut_total")
    assert kept >= told.draft_tokens
    assert one("draftfleet_draft_wait_seconds_count", drafter="lookup") > 0
    assert one("draftfleet_draft_wait_seconds_sum") >= one("draftfleet_draft_busy_seconds_total")
    assert one("draftfleet_drafter_sessions", state="open") == 0
    assert one("draftfleet_sequences_running") == one("draftfleet_sequences_waiting") == 0
    assert one("draftfleet_requests_active") == 0
    assert one("draftfleet_kv_blocks", state="held") == one("vllm:kv_cache_usage_perc") == 0
    parts = {"prefill", "verify", "sampling", "waiting_for_drafts", "deciding", "bookkeeping", "idle"}
    assert all(one("draftfleet_engine_seconds_total", part=part) > 0 for part in parts)
    for role in ("gateway", "router", "target", "drafter"):
        assert one("draftfleet_replicas", role=role) == 1


async def test_the_totals_are_those_of_the_answers(service: Service) -> None:
    told = await load(service)
    assert told.accepted_tokens > 0
    samples = await fetched(service.url)
    check(samples, told)
    again = await fetched(service.url)
    check(again, told)  # looking changes nothing
    assert fallen(samples, again) == []


async def test_every_total_has_moved(service: Service) -> None:
    """So none is there for show; what only goes up when something fails is made to elsewhere."""
    async with httpx.AsyncClient(trust_env=False) as http:
        await http.get(f"{service.url}/nowhere")
    samples = await fetched(service.url)
    moved = {name for (name, _), value in samples.items() if value}
    for metric in METRICS.values():
        if metric.is_cumulative and metric.name not in OF_FAILURES:
            assert {f"{metric.name}_count", f"{metric.name}_total"} & moved, metric.name


async def test_nothing_falls_when_replicas_come_and_go(service: Service) -> None:
    async def rises(before: Samples) -> Samples:
        now = await fetched(service.url)
        assert fallen(before, now) == []
        return now

    before = await fetched(service.url)
    drafts = total(before, "draftfleet_drafts_total")
    await service.start_target("target-1")
    await service.kill_target("target-0")
    told = await load(service)  # a suspect may be tried first, and costs a retry
    before = await rises(before)
    assert total(before, "draftfleet_drafts_total") == drafts + told.drafts
    service.replace_ledger()
    told_later = await load(service)
    before = await rises(before)
    assert total(before, "draftfleet_drafts_total") == drafts + told.drafts + told_later.drafts
    assert total(before, "draftfleet_requests_total", outcome="finished") == 3 * told.requests


async def test_an_answer_that_loses_its_target_goes_on_and_is_counted_once(service: Service) -> None:
    before = await fetched(service.url)
    await service.start_target("target-2")
    request = requests()[2]
    request.sampling.max_tokens, request.sampling.ignore_eos = 200, True
    told, chunks = Told(), []
    async with grpc.aio.insecure_channel(service.grpc_address) as channel:
        async for chunk in GenerationStub(channel).Generate(request):
            chunks.append(chunk)
            if len(chunks) == 5:
                for name in ("target-1", "target-2"):
                    if service.running_targets[name].engine.load.num_running:
                        await service.kill_target(name)
                        break
    told.add(request, chunks)
    assert told.tokens == 200
    after = await fetched(service.url)
    assert fallen(before, after) == []
    for name, more in (
        ("draftfleet_resumes_total", 1),
        ("draftfleet_request_retries_total", 1),
        ("draftfleet_choices_total", 1),
        ("draftfleet_inter_token_latency_seconds_count", 199),
    ):
        assert total(after, name) - total(before, name) == more, name
    # What the target had counted since its last report died with it.
    assert total(after, "draftfleet_generated_tokens_total") - total(before, "draftfleet_generated_tokens_total") <= 200
