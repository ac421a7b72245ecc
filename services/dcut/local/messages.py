"""What the engine and its D-cut say to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

MAX_SNAPSHOT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class StepLoad:
    """The next step, as far as it is known."""

    batch: int  # decoding sequences in it: as many anchors
    context: float  # their mean length
    prefill: int  # prompt rows beside them
    spare_rows: int  # draft rows that have room


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sequence that could be asked a draft for."""

    sequence: int
    kind: str  # of its drafter
    is_local: bool  # drafted in this process, without a wait
    limit: int  # draft tokens at most: the client's, the drafter's and the answer's bound
    is_forced: bool = False  # ask for as many and keep all, whether it pays or not


@dataclass(frozen=True, slots=True)
class Offer:
    """What a sequence has been offered; without probabilities nothing came in time."""

    sequence: int
    probabilities: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Verified:
    """A draft after its step: of `kept` draft tokens the first `accepted` were the target's own."""

    sequence: int
    kept: int
    accepted: int


@dataclass(slots=True)
class DcutCounters:
    """Plain counters since start."""

    asked: int = 0  # drafts
    asked_tokens: int = 0
    offered: int = 0  # drafts that came
    offered_tokens: int = 0
    kept_tokens: int = 0
    wholly_cut: int = 0  # drafts of which nothing was verified
    skipped: int = 0  # times that a sequence was not worth a draft
    probes: int = 0  # drafts asked all the same, to see whether that has changed
    unselected: int = 0  # steps in which selecting could not have paid for itself
    switches: int = 0  # requests moved on to another kind of drafter
    failures: int = 0  # decisions that broke off with an error; those steps went without drafts


@dataclass(frozen=True, slots=True)
class KindSnapshot:
    """What is known of a drafter kind and class of request."""

    kind: str
    task_class: str
    acceptance: tuple[float, ...]  # by position, given those before


@dataclass(frozen=True, slots=True)
class CalibrationSnapshot:
    kind: str
    is_greedy: bool
    stated_error: float  # expected calibration error of the drafter's word
    corrected_error: float


@dataclass(frozen=True, slots=True)
class WaitSnapshot:
    kind: str
    wait_ms: float  # from ask to answer
    busy_ms: float  # of it, in which the drafter computed
    terms_ms: tuple[float, ...]  # of a round, a draft position, a sequence, and both: what waits are expected from


@dataclass(frozen=True, slots=True)
class StepLine:
    """Step time by decoding rows, at a context and beside so many prompt rows."""

    context: int
    prefill: int
    rows: tuple[int, ...]
    measured_ms: tuple[float, ...]  # at start-up
    expected_ms: tuple[float, ...]  # as corrected since


@dataclass(frozen=True, slots=True)
class DcutSnapshot:
    """A target replica's costs, acceptance and decisions, for people to look at."""

    mode: str
    is_profiled: bool
    lines: tuple[StepLine, ...]
    step_factor: float  # steps now take so many times what was measured
    prefill_factor: float
    step_error: float  # smoothed relative error of the expected step time
    waits: tuple[WaitSnapshot, ...]
    acceptance: tuple[KindSnapshot, ...]
    calibration: tuple[CalibrationSnapshot, ...]
    counters: dict[str, int]
    decision_ms: float  # smoothed, of asking and keeping together


def encode_snapshot(snapshot: DcutSnapshot) -> bytes:
    """As msgpack, field by field."""
    return msgspec.msgpack.encode(snapshot)


def decode_snapshot(data: bytes) -> dict[str, Any]:
    """The fields of a snapshot, as they are shown. Raises ValueError for anything else than a msgpack map."""
    if len(data) > MAX_SNAPSHOT_BYTES:
        raise ValueError(f"snapshot: {len(data)} bytes is too large; at most {MAX_SNAPSHOT_BYTES} are allowed")
    try:
        return msgspec.msgpack.decode(data, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ValueError(f"snapshot: {error}") from error
