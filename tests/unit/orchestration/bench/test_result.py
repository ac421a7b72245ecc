"""The result file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestration.bench.load import Load
from orchestration.bench.result import Settings, load_result
from orchestration.bench.runner import ratios
from orchestration.bench.summary import summarise
from tests.unit.orchestration.bench.records import at_rate, failed
from tests.unit.orchestration.bench.results import result, with_failure


@pytest.mark.parametrize("made", [result({"A": [0.01, 0.02], "B": [0.01, 0.01]}, num_loads=2), with_failure()])
def test_a_result_is_the_same_after_a_file(tmp_path: Path, made) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "deep" / "result.json"
    made.save(path)
    assert load_result(path) == made
    assert list(path.parent.iterdir()) == [path]


def test_infinite_rates_survive(tmp_path: Path) -> None:
    made = result({"run": [0.01]})
    load = Load(kind="poisson", request_rate=float("inf"))
    made = made.model_copy(update={"settings": Settings(loads=(load,))})
    made.save(tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text())["settings"]["loads"][0]["request_rate"] == "Infinity"
    assert load_result(tmp_path / "r.json").settings.loads == (load,)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"schema_version": 2}, "schema_version: 2 cannot be read; this version reads 1"),
        ({"schema_name": "other"}, "it is no result of `draftfleet bench`"),
        ({"cells": 3}, "cells: "),
        ({"surprise": 1}, "surprise: "),
    ],
)
def test_other_files_are_refused_with_the_reason(tmp_path: Path, change: dict[str, object], told: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps({**json.loads(result({"run": [0.01]}).model_dump_json()), **change}))
    with pytest.raises(ValueError, match=told):
        load_result(path)
    path.write_text("{")
    with pytest.raises(ValueError, match="it is no JSON"):
        load_result(path)


def test_ratios_are_second_over_first_with_their_interval() -> None:
    slow = [summarise([at_rate(10, gap)], {}) for gap in (0.02, 0.04, 0.02)]
    fast = [summarise([at_rate(10, gap)], {}) for gap in (0.01, 0.02, 0.01)]
    found = ratios(slow, fast)
    assert found["output_throughput"].ratio == pytest.approx(2.0)
    assert found["tpot_mean"].ratio == pytest.approx(0.5)
    assert found["output_throughput"].low == pytest.approx(2.0)
    assert found["output_throughput"].pairs == 3
    assert "accepted_length" not in found


def test_pairs_without_a_figure_are_left_out() -> None:
    good, bad = summarise([at_rate(10, 0.01)], {}), summarise([[failed("timeout")]], {})
    assert ratios([good, bad], [good, good]) == {}
    assert ratios([good, bad, good], [good, good, good])["output_throughput"].pairs == 2
