"""What the dashboard shows: queries over the fleet's metrics, in PromQL."""

from __future__ import annotations

from dataclasses import dataclass

WINDOW = "$__rate_interval"


@dataclass(frozen=True, slots=True)
class Query:
    expr: str
    legend: str = ""  # `{{label}}` stands for a label's value


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    meaning: str
    unit: str  # Grafana's name for it
    queries: tuple[Query, ...]
    is_stacked: bool = False
    most: float | None = None  # upper end of the axis


def rate(name: str, by: str = "", where: str = "") -> str:
    """Of a total, per second, added up over all labels but those of `by`."""
    selector = f"{{{where}}}" if where else ""
    return f"sum by ({by}) (rate({name}{selector}[{WINDOW}]))"


def ratio(part: str, whole: str, by: str = "") -> str:
    return f"{rate(part, by)} / {rate(whole, by)}"


def quantiles(name: str, by: str = "") -> tuple[Query, ...]:
    """Median and tails of a histogram."""
    labels = f"le, {by}" if by else "le"
    suffix = f" {{{{{by}}}}}" if by else ""
    return tuple(
        Query(f"histogram_quantile({share}, {rate(f'{name}_bucket', labels)})", f"{name_}{suffix}")
        for share, name_ in ((0.5, "median"), (0.95, "p95"), (0.99, "p99"))
    )


ROWS: dict[str, tuple[Panel, ...]] = {
    "Overview": (
        Panel(
            "Tokens",
            "Generated and prompt tokens a second.",
            "cps",
            (
                Query(rate("draftfleet_generated_tokens_total"), "generated"),
                Query(rate("draftfleet_prompt_tokens_total"), "prompt"),
                Query(rate("draftfleet_cached_prompt_tokens_total"), "prompt, cached"),
            ),
        ),
        Panel(
            "Accepted length",
            "Tokens a sequence gains in a step, bonus included; 1 is plain decoding.",
            "none",
            (
                Query(ratio("draftfleet_decode_tokens_total", "draftfleet_decode_rounds_total"), "all"),
                Query(ratio("draftfleet_decode_tokens_total", "draftfleet_decode_rounds_total", "class"), "{{class}}"),
            ),
        ),
        Panel(
            "Sequences",
            "In steps, waiting for admission, and requests open at gateways.",
            "none",
            (
                Query("draftfleet_sequences_running", "running"),
                Query("draftfleet_sequences_waiting", "waiting"),
                Query("draftfleet_requests_active", "requests at gateways"),
            ),
        ),
        Panel(
            "Time to first token",
            "As gateways see it.",
            "s",
            quantiles("draftfleet_time_to_first_token_seconds"),
        ),
        Panel(
            "Time between tokens",
            "By the target's stamps; the gap before a step is shared by its tokens.",
            "s",
            quantiles("draftfleet_inter_token_latency_seconds"),
        ),
        Panel(
            "Errors told to clients",
            "By kind.",
            "cps",
            (Query(rate("draftfleet_errors_total", "door, error"), "{{door}} {{error}}"),),
        ),
    ),
    "Drafts": (
        Panel(
            "Accepted drafts",
            "Share of the verified draft tokens that stood.",
            "percentunit",
            (
                Query(
                    ratio("draftfleet_accepted_tokens_total", "draftfleet_draft_tokens_total", "drafter, class"),
                    "{{drafter}} {{class}}",
                ),
            ),
            most=1.0,
        ),
        Panel(
            "Accepted by position",
            "Share of the drafts verified at a position that stood there.",
            "percentunit",
            (
                Query(
                    ratio(
                        "draftfleet_accepted_tokens_per_position_total",
                        "draftfleet_draft_tokens_per_position_total",
                        "position",
                    ),
                    "{{position}}",
                ),
            ),
            most=1.0,
        ),
        Panel(
            "Accepted length by drafter",
            "Tokens gained in a step that verified a draft, bonus included.",
            "none",
            (
                Query(
                    f"1 + {ratio('draftfleet_accepted_tokens_total', 'draftfleet_drafts_total', 'drafter, class')}",
                    "{{drafter}} {{class}}",
                ),
            ),
        ),
        Panel(
            "What became of drafts",
            "Asks by outcome, drafts a second.",
            "cps",
            (
                Query(rate("draftfleet_draft_answers_total", "outcome"), "{{outcome}}"),
                Query(rate("draftfleet_drafts_not_asked_total"), "not worth asking"),
                Query(rate("draftfleet_drafts_wholly_cut_total"), "wholly cut"),
            ),
            is_stacked=True,
        ),
        Panel(
            "Draft tokens: kept and cut",
            "What D-cut made of the offered rows.",
            "cps",
            (
                Query(rate("draftfleet_draft_tokens_kept_total"), "kept"),
                Query(rate("draftfleet_draft_tokens_cut_total"), "cut"),
            ),
            is_stacked=True,
        ),
        Panel(
            "Wait for a draft",
            "From ask to answer, by drafter.",
            "s",
            quantiles("draftfleet_draft_wait_seconds", "drafter"),
        ),
        Panel(
            "Calibration error",
            "Gap between the stated and the observed probability of acceptance.",
            "percentunit",
            (Query("draftfleet_calibration_error_ratio", "{{drafter}} {{sampling}} {{stage}}"),),
        ),
        Panel(
            "Drafter chosen",
            "Requests by class and the drafter that the router found.",
            "cps",
            (Query(rate("draftfleet_routes_total", "class, drafter"), "{{class}} to {{drafter}}"),),
            is_stacked=True,
        ),
    ),
    "Targets": (
        Panel(
            "Where steps' time goes",
            "Seconds of the engines, by part, a second.",
            "percentunit",
            (Query(rate("draftfleet_engine_seconds_total", "part", 'part!="idle"'), "{{part}}"),),
            is_stacked=True,
        ),
        Panel(
            "Rows a step",
            "Rows of prompts and of decoding sequences, drafts included.",
            "none",
            (
                Query(ratio("draftfleet_prompt_rows_total", "draftfleet_steps_total"), "prompts"),
                Query(ratio("draftfleet_decode_rows_total", "draftfleet_steps_total"), "decoding"),
            ),
            is_stacked=True,
        ),
        Panel(
            "KV cache",
            "Share of the blocks that sequences hold, and of the prompt tokens that were cached.",
            "percentunit",
            (
                Query('sum(draftfleet_kv_blocks{state="held"}) / sum(draftfleet_kv_blocks)', "held"),
                Query(ratio("draftfleet_cached_prompt_tokens_total", "draftfleet_prompt_tokens_total"), "prefix hits"),
            ),
            most=1.0,
        ),
        Panel(
            "Trouble",
            "What costs speed or requests, a second.",
            "cps",
            (
                Query(rate("draftfleet_preemptions_total"), "preemptions"),
                Query(rate("draftfleet_failed_steps_total"), "failed steps"),
                Query(rate("draftfleet_dcut_failures_total"), "failed D-cut decisions"),
                Query(rate("draftfleet_target_attempts_lost_total"), "attempts lost"),
                Query(rate("draftfleet_request_retries_total"), "retries"),
            ),
        ),
    ),
    "Drafters": (
        Panel(
            "Batch",
            "Drafts in a batch, by drafter.",
            "none",
            (
                Query(
                    ratio("draftfleet_drafter_drafts_total", "draftfleet_drafter_batches_total", "drafter"),
                    "{{drafter}}",
                ),
            ),
        ),
        Panel(
            "Busy",
            "Drafters at work, as replicas.",
            "none",
            (Query(rate("draftfleet_drafter_busy_seconds_total", "drafter"), "{{drafter}}"),),
        ),
        Panel(
            "Sessions",
            "Open, reserved, and most of both.",
            "none",
            (Query("draftfleet_drafter_sessions", "{{drafter}} {{state}}"),),
        ),
        Panel(
            "Drafter trouble",
            "Faults answered, asks shed, sessions evicted or lost, a second.",
            "cps",
            (
                Query(rate("draftfleet_drafter_faults_total", "drafter, fault"), "{{drafter}} {{fault}}"),
                Query(rate("draftfleet_drafter_drafts_shed_total", "drafter"), "{{drafter}} shed"),
                Query(rate("draftfleet_drafter_sessions_evicted_total", "drafter"), "{{drafter}} evicted"),
                Query(rate("draftfleet_drafter_sessions_lost_total"), "lost, as targets see it"),
            ),
        ),
    ),
    "Fleet": (
        Panel(
            "Replicas",
            "Live ones.",
            "none",
            (Query("draftfleet_replicas", "{{role}} {{drafter}}"),),
        ),
        Panel(
            "Replicas that left",
            "Those that said goodbye, and those that fell silent.",
            "none",
            (Query(f"sum by (role, how) (increase(draftfleet_replicas_left_total[{WINDOW}]))", "{{role}} {{how}}"),),
        ),
        Panel(
            "Reports",
            "Reports that failed or were refused, a second, and the age of the totals shown here.",
            "none",
            (
                Query(rate("draftfleet_fleet_link_failures_total", "role"), "{{role}} without an answer"),
                Query(rate("draftfleet_refused_reports_total"), "refused"),
                Query("draftfleet_totals_age_seconds", "age of the totals, s"),
            ),
        ),
    ),
}
