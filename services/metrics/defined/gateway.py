"""What gateway replicas count."""

from __future__ import annotations

from services.metrics.labels import CLASS, DRAFTER
from services.metrics.metric import Label, Metric

_LATENCY = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_DOOR = Label("door", ("http", "grpc"))
_ERROR = Label(
    "error",
    (
        "invalid",
        "unknown_field",
        "unsupported",
        "malformed",
        "context",
        "too_large",
        "unknown_model",
        "unknown_path",
        "wrong_method",
        "unauthenticated",
        "headers_too_large",
        "slow_reader",
        "rate_limited",
        "overloaded",
        "unavailable",
        "deadline",
        "internal",
    ),
)
_OUTCOME = Label("outcome", ("finished", "failed", "cancelled"))
_REASON = Label("finish_reason", ("stop", "length", "abort"))

REQUESTS = Metric(
    "draftfleet_requests", "total", "Prompts handed to targets, by how their generation ended.", (_OUTCOME,)
)
ERRORS = Metric("draftfleet_errors", "total", "Errors told to clients.", (_DOOR, _ERROR))
CHOICES = Metric(
    "draftfleet_choices",
    "total",
    "Choices of answers that were finished, by the drafter that drafted last.",
    (_REASON, DRAFTER, CLASS),
)
ACTIVE = Metric("draftfleet_requests_active", "sum", "Requests in progress at gateways.")
FIRST_TOKEN = Metric(
    "draftfleet_time_to_first_token_seconds",
    "histogram",
    "From a prompt's arrival at a gateway to its first token there, in seconds.",
    (CLASS,),
    _LATENCY,
)
INTER_TOKEN = Metric(
    "draftfleet_inter_token_latency_seconds",
    "histogram",
    "Time between tokens by the target's stamps, in seconds; the gap before a step is shared evenly by its tokens.",
    (CLASS,),
    (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 5.0),
)
REQUEST_SECONDS = Metric(
    "draftfleet_request_seconds",
    "histogram",
    "From a prompt's arrival at a gateway to the end of its answer, in seconds.",
    (CLASS,),
    (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0),
)
LOST_ATTEMPTS = Metric(
    "draftfleet_target_attempts_lost", "total", "Attempts at a target replica that it did not serve to the end."
)
RETRIES = Metric(
    "draftfleet_request_retries", "total", "Prompts tried at another target replica, those that go on there included."
)
RESUMES = Metric("draftfleet_resumes", "total", "Answers that went on at another target replica.")
FAILED_ROUTES = Metric("draftfleet_failed_routes", "total", "Prompts for which no drafter could be found or attached.")

ALL = (
    REQUESTS,
    ERRORS,
    CHOICES,
    ACTIVE,
    FIRST_TOKEN,
    INTER_TOKEN,
    REQUEST_SECONDS,
    LOST_ATTEMPTS,
    RETRIES,
    RESUMES,
    FAILED_ROUTES,
)
