"""An answer's place in its grammar: only committed tokens move it."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from services.target.grammar.compiler import GrammarCompiler
from services.target.grammar.state import GrammarState
from tests.engines import VOCABULARY, tiny_tokenizer

EOS = VOCABULARY - 1
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
TOKENIZER = tiny_tokenizer()
COMPILER = GrammarCompiler(TOKENIZER, VOCABULARY, (EOS,))


def state(schema: dict[str, Any], eos: Sequence[int] = (EOS,)) -> GrammarState:
    return COMPILER.compile(json.dumps(schema)).fresh(eos)


def ids(text: str) -> list[int]:
    return list(TOKENIZER(text)["input_ids"])


def texts(allowed_V: torch.Tensor) -> set[str]:
    return {TOKENIZER.decode([int(token)]) for token in torch.nonzero(allowed_V)[:, 0]}


def test_only_what_the_schema_allows_may_follow() -> None:
    grammar = state(PERSON)
    assert texts(grammar.allowed(())) == {"{"}
    for token in ids('{"name": "no", "age": 4'):
        assert grammar.allowed(())[token]
        grammar.commit(token)
        assert not grammar.is_complete
    assert texts(grammar.allowed(())) >= {*"0123456789", "}", " ", "\n"}
    assert not grammar.allowed(())[EOS]
    assert not {'"', "a", ","} & texts(grammar.allowed(()))
    grammar.commit(*ids("}"))
    assert grammar.is_complete
    assert grammar.allowed(()).nonzero()[:, 0].tolist() == [EOS]


def test_looking_ahead_leaves_no_trace() -> None:
    """Whatever is looked at in between, the committed tokens alone say what may follow."""
    rng = random.Random(0)
    text = ids('{"name": "otto", "age": 12}')
    plain, looking = state(PERSON), state(PERSON)
    for at, token in enumerate(text):
        for _ in range(3):
            ahead = text[at : at + rng.randrange(6)]
            expected = state(PERSON)
            for earlier in [*text[:at], *ahead]:
                expected.commit(earlier)
            assert torch.equal(looking.allowed(ahead), expected.allowed(()))
        assert torch.equal(looking.allowed(()), plain.allowed(()))
        if rng.random() < 0.5:
            looking.allowed(text[at : at + 3])  # and then some of it, or something else, is committed
        plain.commit(token)
        looking.commit(token)
        assert looking.is_complete == plain.is_complete == (at == len(text) - 1)


def test_rows_behind_the_end_are_free() -> None:
    grammar = state(PERSON)
    whole = ids('{"name": "", "age": 1}')
    for token in whole[:-2]:
        grammar.commit(token)
    assert grammar.allowed([*whole[-2:], EOS]).all()
    assert grammar.allowed([*whole[-2:], 5, 6]).all()
    assert not grammar.failure
    assert not grammar.is_complete
    for token in whole[-2:]:
        grammar.commit(token)
    assert grammar.is_complete


def test_an_answer_that_may_go_on_or_end() -> None:
    grammar = state({"type": "integer"})
    grammar.commit(*ids("7"))
    assert not grammar.is_complete
    assert grammar.allowed(())[EOS]
    assert grammar.allowed(())[ids("5")[0]]
    without = state({"type": "integer"}, eos=())  # as with ignore_eos
    without.commit(*ids("7"))
    assert not without.allowed(())[EOS]
    grammar.commit(EOS)
    assert not grammar.failure


def test_copies_go_their_own_ways() -> None:
    first = state(PERSON)
    for token in ids('{"na'):
        first.commit(token)
    second = first.fresh((EOS,))
    assert texts(second.allowed(())) == {"{"}
    assert texts(first.allowed(())) >= {"m"}


def test_white_space_is_bounded() -> None:
    grammar = state({"type": "array"})
    grammar.commit(*ids("["))
    (space,) = ids(" ")
    count = 0
    while grammar.allowed(())[space]:
        grammar.commit(space)
        count += 1
    assert count == 32


def test_a_token_that_breaks_the_grammar_fails_it_for_good() -> None:
    grammar = state(PERSON)
    grammar.commit(*ids("x"))
    assert grammar.failure.startswith("response_format: the answer cannot be continued")
    assert grammar.allowed(()).all()
    grammar.commit(*ids("{"))
    assert not grammar.is_complete


@pytest.mark.parametrize("schema", [{}, PERSON, {"enum": ["a", 1, None]}, {"type": "array", "items": PERSON}])
def test_any_walk_ends_in_valid_json(schema: dict[str, Any]) -> None:
    rng = random.Random(1)
    for _ in range(20):
        grammar, output = state(schema), []
        while not grammar.is_complete:
            allowed = grammar.allowed(()).nonzero()[:, 0].tolist()
            if EOS in allowed:
                break
            # Whatever closes something, so that the walk ends.
            closing = [t for t in allowed if TOKENIZER.decode([t]) in ("}", "]", '"')]
            output.append(rng.choice(closing if closing and len(output) > 12 else allowed))
            grammar.commit(output[-1])
            assert len(output) < 400
        assert not grammar.failure
        json.loads(TOKENIZER.decode(output))
