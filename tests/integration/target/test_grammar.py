"""Answers that follow a schema: the same with drafts and without, whatever the drafts, and valid to the end."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from services.requests.sampling import SamplingParams
from services.target.model.loader import LoadedTarget
from tests.engines import (
    VOCABULARY,
    Answer,
    Ask,
    answer_all,
    load_tiny,
    make_tiny_model,
    running_engine,
    tiny_tokenizer,
)
from tests.unit.target.desks import ErraticDesk, SilentDesk

# Random models never close a string or a list of their own accord.
ROW = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z]{2,6}$"},
        "kind": {"enum": ["small", "smaller", "large"]},
        "counts": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 999}, "maxItems": 3},
        "more": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
    },
    "required": ["name", "kind", "counts", "more"],
    "additionalProperties": False,
}
SCHEMA = json.dumps(ROW)
TERSE = {"max_whitespace": 2}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> LoadedTarget:
    folder: Path = make_tiny_model("llama", tmp_path_factory.mktemp("grammar") / "model")
    loaded = load_tiny(folder, "bf16")
    assert loaded.verdict.exactness == "bitwise", loaded.verdict.reason
    return loaded


def asks(schema: str = SCHEMA, **fields: Any) -> list[Ask]:
    rng = random.Random(2)
    prompts = [tuple(rng.randrange(VOCABULARY - 20) for _ in range(5 + 9 * i)) for i in range(8)]
    kinds: list[dict[str, Any]] = [
        {"temperature": 0.0},
        {"temperature": 1.0},
        {"temperature": 1.5, "top_p": 0.9, "top_k": 40},
        {"temperature": 0.8, "min_p": 0.05, "repetition_penalty": 1.2, "frequency_penalty": 0.5},
    ]
    return [
        Ask(p, SamplingParams(**{"max_tokens": 200, "seed": i, "response_format": schema, **kinds[i % 4], **fields}))
        for i, p in enumerate(prompts)
    ]


def plainly(target: LoadedTarget, given: list[Ask]) -> list[list[Answer]]:
    with running_engine(target, SilentDesk(), prefix_cache=False, grammar=TERSE) as engine:
        return answer_all(engine, given, concurrency=1)


def check(answer: Answer) -> dict[str, Any]:
    assert answer.finish is not None
    assert answer.finish.reason == "stop"
    row: dict[str, Any] = json.loads(answer.text)
    assert list(row) == ["name", "kind", "counts", "more"]
    assert 2 <= len(row["name"]) <= 6
    assert row["kind"] in ("small", "smaller", "large")
    assert all(0 <= count <= 999 for count in row["counts"])
    assert row["more"] in (True, False, None)
    return row


def test_drafts_change_nothing_and_every_answer_follows_the_schema(target: LoadedTarget) -> None:
    given = asks(n=2)
    plain = plainly(target, given)
    expected = [[choice.tokens for choice in choices] for choices in plain]
    rows = [check(choice) for choices in plain for choice in choices]
    assert len({json.dumps(row) for row in rows}) > 8
    # Drafts of the right answer, and of nonsense that the grammar forbids; spoilt, cut and lost at random.
    known = {tuple(ask.prompt): choices[0].tokens for ask, choices in zip(given, plain, strict=True)}
    for seed, (answers, concurrency) in enumerate(((known, 1), (known, 16), ({}, 16))):
        desk = ErraticDesk(answers, VOCABULARY, seed, likely=range(80, 96))
        with running_engine(target, desk, max_step_rows=48, grammar=TERSE) as engine:
            got = answer_all(engine, given, concurrency)
        assert [[choice.tokens for choice in choices] for choices in got] == expected
        assert [[c.text for c in choices] for choices in got] == [[c.text for c in choices] for choices in plain]
        assert desk.num_given > 0
        if answers:
            accepted = sum(c.finish.statistics.num_accepted_tokens for choices in got for c in choices if c.finish)
            assert accepted > 50


def test_preemption_changes_nothing(target: LoadedTarget) -> None:
    given = asks()
    expected = [choices[0].tokens for choices in plainly(target, given)]
    known = {tuple(ask.prompt): tokens for ask, tokens in zip(given, expected, strict=True)}
    for desk in (SilentDesk(), ErraticDesk(known, VOCABULARY, seed=3)):
        with running_engine(target, desk, kv_memory_mb=8, grammar=TERSE) as engine:
            engine._scheduler.blocks._unused = engine._scheduler.blocks._unused[:14]
            engine._scheduler.blocks.num_blocks = 14
            assert [choices[0].tokens for choices in answer_all(engine, given)] == expected
            assert engine.load.num_preemptions > 0


def test_an_answer_goes_on_elsewhere_where_it_was(target: LoadedTarget) -> None:
    given = asks()
    whole = [choices[0] for choices in plainly(target, given)]
    begun = [answer.tokens[: 1 + 2 * i] for i, answer in enumerate(whole)]
    moved = [replace(ask, begun=tuple(tokens)) for ask, tokens in zip(given, begun, strict=True)]
    known = {tuple(ask.prompt): answer.tokens for ask, answer in zip(given, whole, strict=True)}
    for desk in (SilentDesk(), ErraticDesk(known, VOCABULARY, seed=7)):
        with running_engine(target, desk, grammar=TERSE) as engine:
            rest = [choices[0].tokens for choices in answer_all(engine, moved)]
        assert [[*first, *then] for first, then in zip(begun, rest, strict=True)] == [a.tokens for a in whole]


def test_logprobs_are_the_models_own(target: LoadedTarget) -> None:
    sampling = SamplingParams(max_tokens=9, temperature=0.0, seed=0, logprobs=1)
    given = [Ask((5, 6, 7), sampling), Ask((5, 6, 7), replace(sampling, response_format=SCHEMA))]
    (free,), (bound,) = plainly(target, given)
    assert bound.tokens[0] == tiny_tokenizer()("{")["input_ids"][0]
    assert bound.logprobs[0].top == free.logprobs[0].top  # of the same row, which is not the grammar's to change
    assert bound.logprobs[0].logprob <= free.logprobs[0].logprob


@pytest.mark.parametrize(
    "fields",
    [
        {"min_tokens": 150},  # past the end of the grammar
        {"ignore_eos": True},
        {"bad_words": tuple((token,) for token in range(20))},  # quotation mark and comma among them
        {"logit_bias": {90: -100.0, 92: 100.0}},  # the braces
    ],
)
def test_the_grammar_has_the_last_word(target: LoadedTarget, fields: dict[str, Any]) -> None:
    given = asks(**fields)[:4]
    plain = plainly(target, given)
    for choices in plain:
        check(choices[0])
    known = {tuple(ask.prompt): choices[0].tokens for ask, choices in zip(given, plain, strict=True)}
    with running_engine(target, ErraticDesk(known, VOCABULARY, seed=4), grammar=TERSE) as engine:
        assert [c[0].tokens for c in answer_all(engine, given)] == [c[0].tokens for c in plain]


def test_max_tokens_cuts_and_says_so(target: LoadedTarget) -> None:
    for choices in plainly(target, asks(max_tokens=6)):
        assert choices[0].finish is not None
        assert choices[0].finish.reason == "length"
        assert len(choices[0].tokens) == 6


def test_a_grammar_that_cannot_go_on_ends_its_own_answer_only(target: LoadedTarget) -> None:
    # A vocabulary without the first byte of an e with an accent.
    pieces = json.loads(tiny_tokenizer().backend_tokenizer.to_str())
    vocabulary = pieces["model"]["vocab"]
    vocabulary["never"] = vocabulary.pop("\u00c3")
    lacking = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(pieces)))
    fields = SamplingParams(max_tokens=50, seed=0)
    stuck = Ask((1, 2, 3), replace(fields, response_format=json.dumps({"const": "caf\u00e9"})))
    told = set()
    right = {(1, 2, 3): lacking('"caffffff')["input_ids"]}
    for desk in (SilentDesk(), ErraticDesk(right, VOCABULARY, seed=5), ErraticDesk(right, VOCABULARY, seed=6)):
        with running_engine(target, desk, lacking) as engine:
            ended, free = answer_all(engine, [stuck, Ask((1, 2, 3), fields)])
        assert ended[0].finish is not None
        assert ended[0].finish.reason == "refused"
        assert ended[0].finish.error.startswith("response_format: ")
        told.add((ended[0].text, *ended[0].tokens))
        assert free[0].finish is not None
        assert free[0].finish.reason == "length"
    assert len(told) == 1
