"""What a target's D-cut knows, for people to look at. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from services.dcut.costs.corrected import CorrectedCosts
from services.dcut.costs.drafts import DraftCosts
from services.dcut.local.lessons import Lessons
from services.dcut.local.messages import (
    CalibrationSnapshot,
    DcutSnapshot,
    KindSnapshot,
    StepLine,
    WaitSnapshot,
)


def snapshot_of(
    mode: str,
    steps: CorrectedCosts,
    drafts: DraftCosts,
    lessons: Lessons,
    counters: dict[str, int],
    decision_s: float,
) -> DcutSnapshot:
    """`decision_s`: smoothed time that a decision takes."""
    table = steps.table
    rows = tuple(int(count) for count in table.rows_R)
    at = [(int(context), 0) for context in table.contexts_C]
    at += [(int(table.contexts_C[0]), int(prefill)) for prefill in table.prefills_P[1:]]
    return DcutSnapshot(
        mode=mode,
        is_profiled=steps.is_measured,
        lines=tuple(StepLine(*of, rows, _ms(table.seconds(rows, *of)), _ms(steps.seconds(rows, *of))) for of in at),
        step_factor=steps.factor,
        prefill_factor=steps.prefill_factor,
        step_error=steps.error,
        waits=tuple(
            WaitSnapshot(kind, 1e3 * mean, 1e3 * busy, _ms(drafts.terms(kind)))
            for kind, (mean, busy) in drafts.means().items()
        ),
        acceptance=tuple(
            KindSnapshot(kind, task_class, tuple(lessons.acceptance.conditional(kind, task_class).tolist()))
            for kind, task_class in lessons.acceptance.known()
        ),
        calibration=tuple(CalibrationSnapshot(*key, *errors) for key, errors in lessons.calibration.errors().items()),
        counters=counters,
        decision_ms=1e3 * decision_s,
    )


def _ms(seconds: Iterable[float]) -> tuple[float, ...]:
    return tuple(1e3 * float(value) for value in seconds)
