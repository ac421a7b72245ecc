"""The names under which dashboards and tools of vLLM look for the same numbers."""

from __future__ import annotations

from dataclasses import dataclass

from services.metrics.defined import gateway, target
from services.metrics.metric import Metric

PREFIX = "vllm:"


@dataclass(frozen=True, slots=True)
class Alias:
    """`of`, added up over all labels but the one that is kept: (their name, ours)."""

    name: str  # without the prefix
    of: Metric
    keep: tuple[str, str] | None = None

    @property
    def shown(self) -> str:
        return f"{PREFIX}{self.name}{'_total' if self.of.kind == 'total' else ''}"


ALIASES = (
    Alias("spec_decode_num_drafts", target.DRAFTS),
    Alias("spec_decode_num_draft_tokens", target.DRAFT_TOKENS),
    Alias("spec_decode_num_accepted_tokens", target.ACCEPTED_TOKENS),
    Alias("spec_decode_num_accepted_tokens_per_pos", target.ACCEPTED_TOKENS_AT, ("position", "position")),
    Alias("num_requests_running", target.RUNNING),
    Alias("num_requests_waiting", target.WAITING),
    Alias("num_preemptions", target.PREEMPTIONS),
    Alias("prompt_tokens", target.PROMPT_TOKENS),
    Alias("generation_tokens", target.GENERATED_TOKENS),
    Alias("prefix_cache_queries", target.PROMPT_TOKENS),
    Alias("prefix_cache_hits", target.CACHED_TOKENS),
    Alias("request_success", gateway.CHOICES, ("finished_reason", "finish_reason")),
    Alias("time_to_first_token_seconds", gateway.FIRST_TOKEN),
    Alias("inter_token_latency_seconds", gateway.INTER_TOKEN),
    Alias("e2e_request_latency_seconds", gateway.REQUEST_SECONDS),
)
KV_USAGE = f"{PREFIX}kv_cache_usage_perc"
KV_USAGE_HELP = "Share of the KV blocks that are held, from 0 to 1."
