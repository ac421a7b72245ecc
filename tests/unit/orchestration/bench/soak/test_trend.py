from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from orchestration.bench.soak.load import Seen
from orchestration.bench.soak.observation import Observation, Point, between
from orchestration.bench.soak.report import lines, report, save_json, save_png
from orchestration.bench.soak.trend import Limit, trend

SECONDS = [10.0 * index for index in range(60)]
NOISE = [random.Random(3).gauss(0.0, 1.0) for _ in SECONDS]


def test_noise_and_a_few_outliers_are_flat() -> None:
    values = [100.0 + noise for noise in NOISE]
    values[40] = 1000.0
    found = trend(SECONDS, values, Limit("up", 0.05))
    assert found is not None
    assert found.is_flat
    assert abs(found.drift) < 2


@pytest.mark.parametrize(("bad", "slope", "is_flat"), [("up", 0.1, False), ("up", -0.1, True), ("down", -0.1, False)])
def test_a_slow_drift_the_wrong_way_is_seen(bad: str, slope: float, is_flat: bool) -> None:
    values = [100.0 + noise + slope * at for at, noise in zip(SECONDS, NOISE, strict=True)]
    found = trend(SECONDS, values, Limit(bad, 0.05))  # type: ignore[arg-type]
    assert found is not None
    assert found.is_flat is is_flat
    assert found.drift == pytest.approx(slope * 440, rel=0.1)  # the three quarters after the warm-up


def test_what_rises_only_while_it_warms_up_is_flat() -> None:
    values = [min(at, 140.0) for at in SECONDS]
    found = trend(SECONDS, values, Limit("up", 0.0))
    assert found is not None
    assert found.drift == 0


def test_too_few_values_tell_nothing() -> None:
    assert trend(SECONDS[:5], [1.0] * 5, Limit("up", 0.1)) is None
    assert trend(SECONDS, [None] * 60, Limit("up", 0.1)) is None
    assert trend([], [], Limit("up", 0.1)) is None


def observation(tokens: float, rounds: float, memory: float) -> Observation:
    totals = {
        "draftfleet_generated_tokens_total": tokens,
        "draftfleet_decode_tokens_total": tokens,
        "draftfleet_decode_rounds_total": rounds,
    }
    return Observation(totals, 200, {"target": memory}, {"target": 50}, is_bitwise=True)


def test_figures_are_of_the_time_between_two_looks() -> None:
    point = between(observation(100, 50, 500), observation(400, 150, 510), 10.0, 20.0)
    assert point.figures["tokens a second"] == 30
    assert point.figures["accepted length"] == 3
    assert point.figures["first token, s"] is None
    assert point.figures["memory of target, MiB"] == 510


def test_a_leak_a_changed_text_and_an_error_each_spoil_the_result(tmp_path: Path) -> None:
    def points(leak: float) -> list[Point]:
        return [Point(at, {"memory of target, MiB": 500.0 + leak * at}) for at in SECONDS]

    sound = Seen()
    sound.judge("p", 16, "a")
    sound.judge("p", 16, "a")
    assert report(points(0.0), sound, is_bitwise=True).is_good
    leaking = report(points(1.0), sound, is_bitwise=True)
    assert not leaking.is_good
    assert any("NOT FLAT" in line for line in lines(leaking))
    other = Seen()
    other.judge("p", 16, "a")
    other.judge("p", 16, "b")
    assert not report(points(0.0), other, is_bitwise=True).is_good
    assert report(points(0.0), other, is_bitwise=False).is_good  # ties were promised, not more
    failed = Seen()
    failed.errors["timeout"] += 1
    assert not report(points(0.0), failed, is_bitwise=True).is_good
    save_json(leaking, tmp_path / "soak.json")
    assert json.loads((tmp_path / "soak.json").read_text())["is_good"] is False
    pytest.importorskip("matplotlib", reason="the picture needs matplotlib")
    save_png(leaking, tmp_path / "soak.png")
    assert (tmp_path / "soak.png").read_bytes().startswith(b"\x89PNG")
