"""What target replicas count."""

from __future__ import annotations

from services.metrics.labels import CLASS, DRAFTER, FAULT, POSITION
from services.metrics.metric import Label, Metric

_OUTCOME = Label("outcome", ("drafted", "local", "missed", "late", "stale", "malformed", "unknown", "unused"))
_EVENT = Label("event", ("connected", "disconnected", "refused"))
_PART = Label(
    "part", ("prefill", "verify", "mixed", "sampling", "waiting_for_drafts", "deciding", "bookkeeping", "idle")
)
_SAMPLING = Label("sampling", ("greedy", "sampled"))
_STAGE = Label("stage", ("stated", "corrected"))
_STATE = Label("state", ("held", "free"))

# Rounds and what was verified in them.
ROUNDS = Metric("draftfleet_decode_rounds", "total", "Decode steps of sequences, with or without draft rows.", (CLASS,))
ROUND_TOKENS = Metric(
    "draftfleet_decode_tokens",
    "total",
    "Tokens that those rounds emitted. Over draftfleet_decode_rounds_total: the accepted length, bonus included.",
    (CLASS,),
)
DRAFTS = Metric(
    "draftfleet_drafts", "total", "Rounds in which at least one draft token was verified.", (DRAFTER, CLASS)
)
DRAFT_TOKENS = Metric("draftfleet_draft_tokens", "total", "Draft tokens verified.", (DRAFTER, CLASS))
ACCEPTED_TOKENS = Metric(
    "draftfleet_accepted_tokens", "total", "Draft tokens that were the target's own choice.", (DRAFTER, CLASS)
)
DRAFT_TOKENS_AT = Metric(
    "draftfleet_draft_tokens_per_position",
    "total",
    "Draft tokens verified, by place in the draft from 0.",
    (DRAFTER, POSITION),
)
ACCEPTED_TOKENS_AT = Metric(
    "draftfleet_accepted_tokens_per_position",
    "total",
    "Draft tokens accepted, by place in the draft from 0.",
    (DRAFTER, POSITION),
)
GENERATED_TOKENS = Metric("draftfleet_generated_tokens", "total", "Tokens of answers, the prefill's included.")
PROMPT_TOKENS = Metric("draftfleet_prompt_tokens", "total", "Prompt tokens of sequences that got their first token.")
CACHED_TOKENS = Metric(
    "draftfleet_cached_prompt_tokens", "total", "Of them, tokens whose KV the prefix cache already held."
)

# D-cut.
ASKED = Metric("draftfleet_drafts_asked", "total", "Drafts that D-cut asked for.")
ASKED_TOKENS = Metric("draftfleet_draft_tokens_asked", "total", "Most tokens that those drafts might have.")
OFFERED = Metric("draftfleet_drafts_offered", "total", "Drafts that came in time.")
OFFERED_TOKENS = Metric("draftfleet_draft_tokens_offered", "total", "Tokens of those drafts.")
KEPT_TOKENS = Metric("draftfleet_draft_tokens_kept", "total", "Of them, rows that D-cut let into a step.")
CUT_TOKENS = Metric("draftfleet_draft_tokens_cut", "total", "Of them, rows that D-cut left out.")
WHOLLY_CUT = Metric("draftfleet_drafts_wholly_cut", "total", "Drafts of which nothing was verified.")
NOT_ASKED = Metric("draftfleet_drafts_not_asked", "total", "Times that a sequence was not worth a draft.")
PROBES = Metric("draftfleet_draft_probes", "total", "Drafts asked all the same, to see whether that has changed.")
DCUT_FAILURES = Metric(
    "draftfleet_dcut_failures", "total", "Decisions that broke off with an error; those steps went without drafts."
)
CALIBRATION_ERROR = Metric(
    "draftfleet_calibration_error_ratio",
    "mean",
    "Mean gap between the probability of acceptance and what was accepted, from 0 to 1: as the drafter stated it, and "
    "as corrected.",
    (DRAFTER, _SAMPLING, _STAGE),
)
STEP_TIME_ERROR = Metric(
    "draftfleet_step_time_error_ratio", "mean", "Relative error of the step time that D-cut expects, smoothed."
)

# Dealings with drafters.
DRAFT_WAIT = Metric(
    "draftfleet_draft_wait_seconds",
    "histogram",
    "From asking a drafter replica to its answer, in seconds.",
    (DRAFTER,),
    (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0),
)
DRAFT_BUSY = Metric(
    "draftfleet_draft_busy_seconds", "total", "Of that wait, seconds in which the drafter computed.", (DRAFTER,)
)
ANSWERS = Metric(
    "draftfleet_draft_answers", "total", "Drafts by what became of the ask; local ones had no wait.", (_OUTCOME,)
)
FAULTS = Metric("draftfleet_draft_faults", "total", "Faults that drafters answered with.", (FAULT,))
CATCH_UPS = Metric("draftfleet_drafter_catch_ups", "total", "Sequences that were sent to a drafter anew.")
LOST_SESSIONS = Metric("draftfleet_drafter_sessions_lost", "total", "Sequences whose state at a drafter was lost.")
CONNECTIONS = Metric(
    "draftfleet_drafter_connections",
    "total",
    "Streams to drafter replicas: opened, ended, and leases refused for want of one.",
    (_EVENT,),
)
BAD_FRAMES = Metric(
    "draftfleet_drafter_bad_frames", "total", "Frames that could not be read, or were dropped at a full queue."
)

# The engine.
STEPS = Metric("draftfleet_steps", "total", "Forward passes.")
FAILED_STEPS = Metric("draftfleet_failed_steps", "total", "Steps that broke off; their requests failed.")
PROMPT_ROWS = Metric("draftfleet_prompt_rows", "total", "Rows of prompts computed, those computed anew included.")
DECODE_ROWS = Metric("draftfleet_decode_rows", "total", "Rows of decoding sequences computed, draft rows included.")
ENGINE_SECONDS = Metric(
    "draftfleet_engine_seconds",
    "total",
    "Where the engine's time goes, in seconds. Forward passes are prefill, verify or mixed by the rows in them; on a "
    "GPU they may end within sampling.",
    (_PART,),
)
RUNNING = Metric("draftfleet_sequences_running", "sum", "Sequences that take part in steps.")
WAITING = Metric("draftfleet_sequences_waiting", "sum", "Sequences that wait for admission.")
PREEMPTIONS = Metric("draftfleet_preemptions", "total", "Sequences that gave up their KV for others.")
KV_BLOCKS = Metric("draftfleet_kv_blocks", "sum", "KV blocks; those that only cache a prefix are free.", (_STATE,))

ALL = (
    ROUNDS,
    ROUND_TOKENS,
    DRAFTS,
    DRAFT_TOKENS,
    ACCEPTED_TOKENS,
    DRAFT_TOKENS_AT,
    ACCEPTED_TOKENS_AT,
    GENERATED_TOKENS,
    PROMPT_TOKENS,
    CACHED_TOKENS,
    ASKED,
    ASKED_TOKENS,
    OFFERED,
    OFFERED_TOKENS,
    KEPT_TOKENS,
    CUT_TOKENS,
    WHOLLY_CUT,
    NOT_ASKED,
    PROBES,
    DCUT_FAILURES,
    CALIBRATION_ERROR,
    STEP_TIME_ERROR,
    DRAFT_WAIT,
    DRAFT_BUSY,
    ANSWERS,
    FAULTS,
    CATCH_UPS,
    LOST_SESSIONS,
    CONNECTIONS,
    BAD_FRAMES,
    STEPS,
    FAILED_STEPS,
    PROMPT_ROWS,
    DECODE_ROWS,
    ENGINE_SECONDS,
    RUNNING,
    WAITING,
    PREEMPTIONS,
    KV_BLOCKS,
)
