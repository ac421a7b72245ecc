from __future__ import annotations

import json
from pathlib import Path

import pytest

from services.dcut.costs.steps import StepSample
from services.dcut.costs.store import Measured, stored_or_measured

KEY: dict[str, str | int] = {"model": "m", "threads": 2}
SAMPLES = [StepSample(1, 64, 0, 0.01), StepSample(8, 64, 0, 0.02)]


class Bench:
    def __init__(self, is_complete: bool = True) -> None:
        self.runs = 0
        self.is_complete = is_complete

    def __call__(self) -> Measured:
        self.runs += 1
        return Measured(tuple(SAMPLES), self.is_complete)


def test_is_measured_once_for_a_key(tmp_path: Path) -> None:
    bench = Bench()
    first = stored_or_measured(tmp_path, KEY, bench)
    second = stored_or_measured(tmp_path, KEY, bench)
    assert bench.runs == 1
    assert first.samples == second.samples == tuple(SAMPLES)
    stored_or_measured(tmp_path, {**KEY, "threads": 1}, bench)
    assert bench.runs == 2
    assert len(list((tmp_path / "costs").iterdir())) == 2


def test_a_table_with_holes_is_not_kept(tmp_path: Path) -> None:
    bench = Bench(is_complete=False)
    for _ in range(2):
        assert stored_or_measured(tmp_path, KEY, bench).samples == tuple(SAMPLES)
    assert bench.runs == 2


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{",
        '{"format": 1}',
        '{"format": 9, "key": {}, "samples": []}',
        '{"format": 1, "key": {"model": "x"}, "samples": []}',
    ],
)
def test_what_cannot_be_used_is_measured_anew(tmp_path: Path, content: str) -> None:
    bench = Bench()
    stored_or_measured(tmp_path, KEY, bench)
    (file,) = (tmp_path / "costs").iterdir()
    file.write_text(content)
    assert stored_or_measured(tmp_path, KEY, bench).samples == tuple(SAMPLES)
    assert bench.runs == 2
    assert json.loads(file.read_text())["key"] == KEY


@pytest.mark.parametrize("sample", [{"rows": 0}, {"seconds": -1}, {"seconds": "fast"}, {"other": 1}])
def test_an_impossible_sample_is_not_believed(tmp_path: Path, sample: dict[str, object]) -> None:
    bench = Bench()
    stored_or_measured(tmp_path, KEY, bench)
    (file,) = (tmp_path / "costs").iterdir()
    stored = json.loads(file.read_text())
    stored["samples"][0].update(sample)
    file.write_text(json.dumps(stored))
    assert stored_or_measured(tmp_path, KEY, bench).samples == tuple(SAMPLES)
    assert bench.runs == 2


def test_a_folder_that_cannot_be_written_costs_no_start(tmp_path: Path) -> None:
    (tmp_path / "costs").write_text("in the way")
    assert stored_or_measured(tmp_path, KEY, Bench()).samples == tuple(SAMPLES)
