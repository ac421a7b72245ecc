from __future__ import annotations

import math

import pytest

from services.training.watch import LossWatch, TrainingDiverged


def test_noise_passes() -> None:
    watch = LossWatch()
    for step in range(1, 500):
        watch.add(1.0 + 0.5 * math.sin(step), step)


def test_a_loss_that_keeps_growing_does_not() -> None:
    watch = LossWatch()
    for step in range(1, 50):
        watch.add(1.0, step)

    def grow() -> None:
        for step in range(50, 200):
            watch.add(3.0, step)

    with pytest.raises(TrainingDiverged, match=r"grows: .*matrix_lr"):
        grow()


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_no_number_stops_at_once(loss: float) -> None:
    with pytest.raises(TrainingDiverged, match="step 7"):
        LossWatch().add(loss, 7)
