"""D-cut against lengths that never change, in virtual time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from services.dcut.costs.steps import StepCosts, StepSample
from services.dcut.local.config import LocalDcutConfig
from services.dcut.local.dcut import LocalDcut
from tests.unit.dcut.local.virtual import VirtualTarget

# Milliseconds of a step by rows: like a small model on two cores, where rows soon cost, and a larger one on a GPU.
CPU = ((1, 11), (2, 11.3), (4, 12), (8, 14), (16, 20), (32, 33), (64, 60), (128, 115), (256, 225))
GPU = ((1, 10), (8, 10.3), (32, 11), (64, 12), (128, 15), (256, 24), (512, 44))
QUALITIES: dict[str, Callable[[int], float]] = {
    "good": lambda number: 0.85,
    "bad": lambda number: 0.2,
    "mixed": lambda number: 0.9 if number % 2 else 0.25,
}


def wait(sequences: int, length: int) -> float:
    return 0.001 + 0.0006 * length + 0.00004 * sequences * length


def speed(table: StepCosts, quality: str, batch: int, limit: int = 7, **settings: str) -> float:
    dcut = LocalDcut(LocalDcutConfig.model_validate(settings), table)
    target = VirtualTarget(dcut, table, wait, QUALITIES[quality], batch, limit)
    target.run(60 * batch)  # before anything is known
    return target.run(1000 + 100 * batch)


@pytest.mark.parametrize("batch", [1, 16])
@pytest.mark.parametrize("quality", QUALITIES)
@pytest.mark.parametrize("steps", [CPU, GPU], ids=["cpu", "gpu"])
def test_close_to_the_best_length_in_hindsight(steps: tuple[tuple[int, float], ...], quality: str, batch: int) -> None:
    table = StepCosts(StepSample(rows, 256, 0, ms / 1e3) for rows, ms in steps)
    static = {length: speed(table, quality, batch, length, mode="off") for length in (0, 1, 3, 7)}
    # What lacks is probes, learning and the luck of the draw; and where sequences differ and rows are cheap, most
    # tokens in every step are not most tokens in the end.
    for objective, share in (("tokens", 0.85), ("requests", 0.93)):
        chosen = speed(table, quality, batch, objective=objective)
        assert chosen >= share * max(static.values()), (objective, chosen, static)
        assert chosen >= 0.96 * static[0], (objective, chosen, static)


def test_cuts_are_better_than_quarters_and_than_none_under_load() -> None:
    table = StepCosts(StepSample(rows, 256, 0, ms / 1e3) for rows, ms in CPU)
    exact, quarters, off = (speed(table, "mixed", 32, mode=mode) for mode in ("exact", "quarters", "off"))
    assert exact > 1.2 * quarters > 1.2 * off
