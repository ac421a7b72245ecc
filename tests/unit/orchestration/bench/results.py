"""A small result with figures written by the test."""

from __future__ import annotations

from orchestration.bench.load import Load
from orchestration.bench.options import Arm
from orchestration.bench.record import Record
from orchestration.bench.result import Cell, MeasuredArm, Pairing, Request, Result, Settings
from orchestration.bench.runner import ratios
from orchestration.bench.summary import summarise
from orchestration.bench.surroundings import Machine
from tests.unit.orchestration.bench.records import at_rate, failed

MACHINE = Machine(system="Linux 6", processor="abacus", cores=2, memory_gib=24.0, gpus=(), load_average=0.1)


def cell(arm: str, load: Load, gaps: list[float], extra: list[Record] | None = None) -> Cell:
    runs = [[*at_rate(10, gap), *(extra or [])] for gap in gaps]
    return Cell(
        arm=arm,
        dataset="chat",
        load=load.label,
        total=summarise(runs, {"ttft": 1000.0}),
        runs=tuple(summarise([run], {"ttft": 1000.0}) for run in runs),
        requests=tuple(Request.of(record, 0, 0.0) for record in runs[0]),
    )


def result(gaps: dict[str, list[float]], num_loads: int = 1, **settings: object) -> Result:
    """Each arm's tokens come with the gaps, one gap a run."""
    loads = tuple(Load(concurrency=2**index) for index in range(num_loads))
    cells = {(arm, load.label): cell(arm, load, values) for load in loads for arm, values in gaps.items()}
    pairings = []
    *others, second = gaps
    for first in others:
        for load in loads:
            a, b = cells[first, load.label], cells[second, load.label]
            pairings.append(
                Pairing(
                    first=first,
                    second=second,
                    dataset="chat",
                    load=load.label,
                    ratios=ratios(a.runs, b.runs),
                    same_texts=4,
                    texts=4,
                )
            )
    return Result(
        date="2026-01-01T00:00:00+00:00",
        machine=MACHINE,
        versions={"python": "3.11"},
        settings=Settings.model_validate({"datasets": ("chat",), "loads": loads, **settings}),
        arms=tuple(MeasuredArm(arm=Arm(name=arm), model="tiny", facts={"exactness": "bitwise"}) for arm in gaps),
        sources={"chat": "mt-bench"},
        cells=tuple(cells.values()),
        pairings=tuple(pairings),
    )


def with_failure(arm: str = "run") -> Result:
    plain = result({arm: [0.01]})
    broken = cell(arm, Load(concurrency=1), [0.01], [failed("HTTP 500", text="[bold]broken <b>")])
    return plain.model_copy(update={"cells": (broken,)})
