"""Prompt sets."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestration.bench import prompts
from orchestration.bench.prompts import Prompt, PromptSet, dataset, long_prompts, read_prompts
from services.training.synthesis.dialogue import CLASSES, TaskClass
from services.training.synthesis.evaluation import DataUnavailableError


@pytest.fixture
def without_public_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: TaskClass) -> tuple[Prompt, ...]:
        raise DataUnavailableError("not installed")

    monkeypatch.setattr(prompts, "evaluation_prompts", missing)


@pytest.mark.usefixtures("without_public_sets")
@pytest.mark.parametrize("name", CLASSES)
def test_our_own_prompts_serve_where_no_public_set_is(name: str) -> None:
    found = dataset(name)
    assert found.source == f"draftfleet's own {name} prompts"
    (part,) = found.parts
    assert len({prompt.text for prompt in part}) == len(part) >= 8


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_has_prompts_whatever_is_installed(name: str) -> None:
    assert all(prompt.text.strip() for prompt in dataset(name).take(20, 0))


def test_the_mixture_holds_equal_shares() -> None:
    found = dataset("mixed").take(12, seed=3)
    classes = [{prompt.name for part in dataset(name).parts for prompt in part} for name in CLASSES]
    assert [sum(prompt.name in names for prompt in found) for names in classes] == [4, 4, 4]


def test_an_unknown_set_is_told() -> None:
    with pytest.raises(ValueError, match="dataset: 'prose' is not known; it must be one of chat, code, maths, mixed"):
        dataset("prose")


@given(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=3), count=st.integers(0, 40), seed=st.integers(0, 99))
def test_a_selection_repeats_no_prompt_before_its_part_is_through(sizes: list[int], count: int, seed: int) -> None:
    parts = tuple(tuple(Prompt(f"{p}/{i}", "") for i in range(size)) for p, size in enumerate(sizes))
    found = PromptSet("s", "s", parts).take(count, seed)
    assert found == PromptSet("s", "s", parts).take(count, seed)
    assert len(found) == count
    for index, part in enumerate(parts):
        times = Counter(prompt.name for prompt in found[index :: len(parts)])
        assert set(times) <= {prompt.name for prompt in part}
        assert max(times.values(), default=0) - min(times.values(), default=0) <= 1
        assert len(times) == min(len(part), len(found[index :: len(parts)]))


def test_own_files_are_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"prompt": "a", "answer": "?"}\n\n{"prompt": "b"}\n')
    found = read_prompts(path)
    assert found.parts == ((Prompt("mine.jsonl/1", "a"), Prompt("mine.jsonl/3", "b")),)
    assert (found.name, found.source) == ("mine", "mine.jsonl")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("hello\n", ":1: 'hello' is no prompt"),
        ('{"text": 1}\n', ":1: "),
        ('{"prompt": ""}\n', "must be a text"),
        ("", "no prompt"),
    ],
)
def test_mistakes_in_own_files_are_told(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=told):
        read_prompts(path)


def test_long_prompts_have_their_length_and_differ_from_the_start() -> None:
    found = long_prompts(2000, 4.0, 8).take(8, 0)
    assert {len(prompt.text) for prompt in found} == {8000}
    task = len("Summarise this text in a few sentences:\n\n")
    assert len({prompt.text[task : task + 40] for prompt in found}) == 8
    with pytest.raises(ValueError, match="context: 2 is out of range"):
        long_prompts(2, 4.0, 1)
