from __future__ import annotations

import pytest

from services.target.emission import TokenTrace
from services.training.evaluation.report import Result, as_json, as_markdown
from services.training.evaluation.tally import Tally, total

ACCEPTED, PLAIN = TokenTrace("accepted"), TokenTrace("plain")


def _tally() -> Tally:
    tally = Tally(answers=1)
    tally.add_round([ACCEPTED, TokenTrace("bonus", (5, 6))], 2)  # 1 of 3
    tally.add_round([TokenTrace("bonus", (5, 6, 7))], 1)  # 0 of 3
    tally.add_round([ACCEPTED, ACCEPTED, TokenTrace("bonus", ())], 3)  # 2 of 2
    tally.add_round([PLAIN], 1)  # no draft came
    return tally


def test_rounds_without_drafts_count_in_the_length_alone() -> None:
    tally = _tally()
    assert tally.accepted_length == pytest.approx(7 / 4)
    assert tally.offered == [3, 3, 2]
    assert tally.acceptance == pytest.approx([2 / 3, 1 / 3, 0])
    assert tally.drafted_rounds == 3


def test_tallies_add_up_whatever_their_lengths() -> None:
    short = Tally(answers=1)
    short.add_round([ACCEPTED, TokenTrace("bonus")], 2)
    whole = total([short, _tally(), Tally()])
    assert whole.offered == [4, 3, 2]
    assert whole.accepted == [3, 1, 0]
    assert whole.accepted_length == pytest.approx(9 / 5)


def test_reports_say_the_formula_and_the_conditions() -> None:
    results = [Result("mtp", "chat", 0.0, 3, _tally(), Tally())]
    conditions = {"max_tokens": 192}
    told = as_json(results, conditions)
    assert told["results"][0]["accepted_length"] == 1.75
    assert "bonus token included" in told["formula"]
    table = as_markdown(results, conditions)
    assert "| mtp | chat | 0 | 1 (0) | 1.75 | 1.75 |  | 0.67 0.33 0.00 |" in table
    assert "max tokens: 192" in table
