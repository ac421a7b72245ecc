"""Tables, page and plots of results."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestration.bench.report import page
from orchestration.bench.report.hindsight import hindsight
from orchestration.bench.report.page import as_html
from orchestration.bench.report.tables import notes, number, tables
from orchestration.bench.result import Result
from tests.unit.orchestration.bench.results import result, with_failure

PAIR = result({"A": [0.02, 0.02], "B": [0.01, 0.01]}, num_loads=2)


def test_every_cell_has_a_row_and_every_row_all_columns() -> None:
    figures, pairings = tables(PAIR)
    assert len(figures.rows) == 4
    for table in (figures, pairings):
        assert {len(row) for row in table.rows} == {len(table.columns)}
    assert pairings.title.startswith("B over A")
    assert "2.00x [2.00, 2.00]" in pairings.rows[0]
    assert pairings.rows[0][-1] == "4 of 4"
    assert "accepted length" not in figures.columns  # nobody told one


def test_the_last_of_several_arms_is_compared_with_the_best_of_the_others() -> None:
    several = result({"plain": [0.02, 0.02], "mtp:3": [0.01, 0.01], "adaptive": [0.016, 0.016]}, num_loads=2)
    _, pairings = tables(several)
    assert [row[0] for row in pairings.rows] == ["plain", "plain", "mtp:3", "mtp:3"]
    assert pairings.title.startswith("adaptive over plain, mtp:3")
    table = hindsight(several)
    assert [row[:3] for row in table.rows] == [("chat", "1 at once", "mtp:3"), ("chat", "2 at once", "mtp:3")]
    assert all(row[3].startswith("0.6") for row in table.rows)


def test_errors_have_a_table_of_their_own() -> None:
    *_, errors = tables(with_failure())
    assert errors.rows == (("run", "chat", "1 at once", "HTTP 500", "1", "[bold]broken <b>"),)


def test_notes_say_what_was_asked_of_what_and_where() -> None:
    said = "\n".join(notes(PAIR))
    for words in ("mt-bench", "abacus", "max_tokens 128", "exactness bitwise"):
        assert words in said


@pytest.mark.parametrize(
    ("value", "text"), [(None, ""), (0.123, "0.12"), (12.345, "12.35"), (123.456, "123.5"), (12345.6, "12346")]
)
def test_numbers_keep_what_they_can_mean(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize("made", [PAIR, with_failure()])
def test_the_page_needs_nothing_else_and_escapes_what_servers_say(made: Result) -> None:
    said = as_html(made)
    assert "abacus" in said
    assert "src=" not in said
    assert "<link" not in said
    assert "broken <b>" not in said


def test_the_page_does_without_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: Result) -> str:
        raise ImportError("matplotlib")

    monkeypatch.setattr(page, "as_svg", missing)
    assert "matplotlib was not installed" in as_html(PAIR)


@pytest.mark.parametrize("made", [PAIR, with_failure(), result({"run": [0.01]}, num_loads=2, contexts=(64,))])
def test_plots_are_drawn(made: Result, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the bench extra")
    from orchestration.bench.report.plots import as_svg, save_png

    save_png(made, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert as_svg(made).startswith("<svg")
