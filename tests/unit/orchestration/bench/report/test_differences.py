"""Two results compared."""

from __future__ import annotations

import pytest

from orchestration.bench.report.differences import changes, differences, matched, warnings
from tests.unit.orchestration.bench.results import MACHINE, result


def test_ratios_are_after_over_before_and_say_what_is_better() -> None:
    before, after = result({"run": [0.02]}), result({"run": [0.01]})
    ((old, new),) = matched(before, after)
    found = {change.figure: change for change in changes(old, new)}
    assert found["output_throughput"].ratio == pytest.approx(2.0)
    assert found["tpot_mean"].ratio == pytest.approx(0.5)
    assert all(change.is_better for change in found.values())
    rows = differences(before, after).rows
    assert ("run", "chat", "1 at once", "output tok/s", "50.00", "100.0", "2.00x", "better") in rows
    assert {row[-1] for row in differences(after, before).rows} == {"worse"}
    assert {row[-1] for row in differences(after, after).rows} == {""}


def test_a_single_arm_matches_whatever_its_name() -> None:
    assert len(matched(result({"run": [0.01]}), result({"new": [0.01]}))) == 1
    pair = result({"A": [0.01, 0.01], "B": [0.01, 0.01]}, num_loads=2)
    assert len(matched(pair, pair)) == 4


def test_files_without_a_common_cell_are_refused() -> None:
    with pytest.raises(ValueError, match="no cell in common"):
        matched(result({"A": [0.01, 0.01], "B": [0.01, 0.01]}), result({"C": [0.01]}))


def test_other_conditions_are_told() -> None:
    before = result({"run": [0.01]})
    assert warnings(before, before) == []
    busy = before.model_copy(update={"machine": MACHINE.model_copy(update={"load_average": 9.0})})
    assert warnings(before, busy) == []
    other = result({"run": [0.01]}, num_prompts=5).model_copy(
        update={
            "machine": MACHINE.model_copy(update={"processor": "loom"}),
            "sources": {"chat": "own"},
            "arms": (
                before.arms[0].model_copy(
                    update={"model": "big", "arm": before.arms[0].arm.model_copy(update={"max_tokens": 9})}
                ),
            ),
        }
    )
    told = " ".join(warnings(before, other))
    for words in (
        "abacus against loom",
        "mt-bench against chat: own",
        "num_prompts: None against 5",
        "128 against 9",
        "tiny against big",
    ):
        assert words in told
