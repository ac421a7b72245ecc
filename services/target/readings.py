"""A target replica's numbers for the fleet's totals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from services.dcut.local.dcut import LocalDcut
from services.metrics.defined import target as defined
from services.metrics.readings import Readings
from services.target.counters import EngineCounters
from services.target.drafting.counters import DraftingCounters
from services.target.engine import Engine

_FAULT_PREFIX = "FAULT_CODE_"


def read_target(engine: Engine, drafting: DraftingCounters) -> Readings:
    """To be called from any thread: it reads numbers that the engine's thread goes on writing."""
    readings = Readings()
    _rounds(readings, engine.counters)
    _engine(readings, engine)
    _dcut(readings, engine.local_dcut)
    _drafting(readings, drafting)
    return readings


def _rounds(readings: Readings, counters: EngineCounters) -> None:
    readings.put_all(defined.ROUNDS, counters.rounds)
    readings.put_all(defined.ROUND_TOKENS, counters.round_tokens)
    readings.put_all(defined.DRAFTS, counters.drafts)
    readings.put_all(defined.DRAFT_TOKENS, counters.draft_tokens)
    readings.put_all(defined.ACCEPTED_TOKENS, counters.accepted_tokens)
    readings.put_all(defined.DRAFT_TOKENS_AT, _by_position(counters.verified_lengths))
    readings.put_all(defined.ACCEPTED_TOKENS_AT, _by_position(counters.accepted_lengths))
    readings.put_histogram(counters.waits)
    readings.put_all(defined.DRAFT_BUSY, counters.busy_s)
    readings.put(defined.GENERATED_TOKENS, counters.generated_tokens)
    readings.put(defined.PROMPT_TOKENS, counters.prompt_tokens)
    readings.put(defined.CACHED_TOKENS, counters.cached_tokens)


def _engine(readings: Readings, engine: Engine) -> None:
    counters, load = engine.counters, engine.load
    readings.put(defined.STEPS, counters.steps)
    readings.put(defined.FAILED_STEPS, counters.failed_steps)
    readings.put(defined.PROMPT_ROWS, counters.prompt_rows)
    readings.put(defined.DECODE_ROWS, counters.decode_rows)
    readings.put_all(defined.ENGINE_SECONDS, counters.seconds)
    readings.put(defined.PREEMPTIONS, load.num_preemptions)
    readings.put(defined.RUNNING, load.num_running)
    readings.put(defined.WAITING, load.num_waiting)
    readings.put(defined.KV_BLOCKS, load.num_blocks - load.num_free_blocks, "held")
    readings.put(defined.KV_BLOCKS, load.num_free_blocks, "free")


def _dcut(readings: Readings, dcut: LocalDcut) -> None:
    counters = dcut.counters
    readings.put(defined.ASKED, counters.asked)
    readings.put(defined.ASKED_TOKENS, counters.asked_tokens)
    readings.put(defined.OFFERED, counters.offered)
    kept, offered = counters.kept_tokens, counters.offered_tokens
    readings.put(defined.OFFERED_TOKENS, offered)
    readings.put(defined.KEPT_TOKENS, kept)
    readings.put(defined.CUT_TOKENS, max(offered - kept, 0))
    readings.put(defined.WHOLLY_CUT, counters.wholly_cut)
    readings.put(defined.NOT_ASKED, counters.skipped)
    readings.put(defined.PROBES, counters.probes)
    readings.put(defined.DCUT_FAILURES, counters.failures)
    readings.put(defined.STEP_TIME_ERROR, dcut.steps.error)
    for (kind, is_greedy), (stated, corrected) in dcut.lessons.calibration.errors().items():
        sampling = "greedy" if is_greedy else "sampled"
        readings.put(defined.CALIBRATION_ERROR, stated, kind, sampling, "stated")
        readings.put(defined.CALIBRATION_ERROR, corrected, kind, sampling, "corrected")


def _drafting(readings: Readings, counters: DraftingCounters) -> None:
    outcomes = {
        "drafted": counters.drafts,
        "local": counters.local_drafts,
        "missed": counters.missed,
        "late": counters.late,
        "stale": counters.stale,
        "malformed": counters.malformed,
        "unknown": counters.unknown,
        "unused": counters.unused,
    }
    readings.put_all(defined.ANSWERS, outcomes)
    for code, count in dict(counters.faults).items():
        readings.put(defined.FAULTS, count, code.removeprefix(_FAULT_PREFIX).lower())
    readings.put(defined.CATCH_UPS, counters.catch_ups)
    readings.put(defined.LOST_SESSIONS, counters.lost)
    events = {
        "connected": counters.connects,
        "disconnected": counters.disconnects,
        "refused": counters.refused_leases,
    }
    readings.put_all(defined.CONNECTIONS, events)
    readings.put(defined.BAD_FRAMES, counters.unreadable_frames + counters.dropped_frames)


def _by_position(lengths: Mapping[tuple[str, int], int]) -> Counter[tuple[str, str]]:
    """How many of the lengths reach each position, counted from 0."""
    reached: Counter[tuple[str, str]] = Counter()
    for (kind, length), count in dict(lengths).items():
        for position in range(length):
            reached[kind, str(position)] += count
    return reached
