"""What can be compiled, and what is said of the rest."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from services.requests.json_schema import ANY_OBJECT
from services.target.grammar.compiler import CompilerBusy, GrammarCompiler
from services.target.grammar.config import GrammarConfig
from services.target.grammar.state import GrammarState
from tests.engines import VOCABULARY, tiny_tokenizer
from tests.unit.gateway.tokenizers import byte_fallback, byte_level


def compiler(**settings: object) -> GrammarCompiler:
    return GrammarCompiler(tiny_tokenizer(), VOCABULARY, (VOCABULARY - 1,), GrammarConfig.model_validate(settings))


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ('{"type": "nothing"}', "Invalid type"),
        ('{"type": "integer", "minimum": 5, "maximum": 3}', "Unsatisfiable"),
        ('{"not": {"type": "string"}}', "Unimplemented"),
        ('{"type": "string", "pattern": "(a"}', "regex parse error"),
        ('{"$ref": "http://example.com/schema"}', "not fetch"),
        ('{"not": {"type": "string"}, "x-guidance": {"lenient": true}}', "Unimplemented"),  # not to be had by asking
        ('{"const": NaN}', "it cannot be read"),
        ('{"type": "integer", "minimum": 1e400}', "it cannot be read"),
        ('{"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}', "may follow"),
    ],
)
async def test_schemas_that_cannot_be_followed(schema: str, message: str) -> None:
    ready = compiler()
    for _ in range(2):
        with pytest.raises(ValueError, match=f"(?s)^response_format: .*{message}"):
            await ready.grammar(schema)
    assert (await ready.grammar(ANY_OBJECT)).allowed(()).sum() == 1  # it goes on working


async def test_a_schema_past_the_bound_of_its_grammar() -> None:
    wide = json.dumps({"properties": {f"p{i}": {"enum": [f"v{j}" for j in range(20)]} for i in range(60)}})
    with pytest.raises(ValueError, match=r"^response_format: it cannot be followed"):
        await compiler(max_size=200).grammar(wide)
    await compiler().grammar(wide)


@pytest.mark.parametrize("kind", ["words", "no braces"])
async def test_tokenizers_that_cannot_serve(kind: str) -> None:
    if kind == "words":
        words = Tokenizer(models.WordLevel({"[UNK]": 0, "hello": 1}, unk_token="[UNK]"))
        words.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=words)
    else:
        from tokenizers import decoders

        pieces = Tokenizer(models.BPE({"a": 0, "b": 1}, []))
        pieces.decoder = decoders.ByteLevel()
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=pieces)
    with pytest.raises(ValueError, match=r"^response_format: .*this model's tokenizer"):
        await GrammarCompiler(tokenizer, 8, ()).grammar(ANY_OBJECT)


@pytest.mark.parametrize("make", [byte_level, byte_fallback])
async def test_tokenizers_of_the_common_kinds_serve(make: type) -> None:
    tokenizer = make()
    grammar = (await GrammarCompiler(tokenizer, len(tokenizer) + 7, ()).grammar(ANY_OBJECT)).fresh(())
    assert grammar.allowed(()).shape == (len(tokenizer) + 7,)
    for token in tokenizer("{}", add_special_tokens=False)["input_ids"]:
        assert grammar.allowed(())[token]
        grammar.commit(token)
    assert grammar.is_complete


async def test_a_schema_is_compiled_once_and_the_oldest_is_forgotten() -> None:
    ready = compiler(cached=2)
    schemas = [json.dumps({"const": n}) for n in range(3)]
    first = await asyncio.gather(*(ready.grammar(schemas[0]) for _ in range(3)))
    assert first[0] is first[1] is first[2] is await ready.grammar(schemas[0])
    for schema in schemas[1:]:
        await ready.grammar(schema)
    assert await ready.grammar(schemas[0]) is not first[0]


async def test_what_takes_too_long_is_refused_and_holds_up_the_next_no_longer_than_it_runs() -> None:
    may_end = threading.Event()

    class Slow(GrammarCompiler):
        def compile(self, schema: str) -> GrammarState:
            may_end.wait(20)
            return super().compile(schema)

    ready = Slow(tiny_tokenizer(), VOCABULARY, (), GrammarConfig(compile_timeout_s=0.05))
    with pytest.raises(ValueError, match=r"^response_format: it is too complex; it was not compiled within 0\.05 s"):
        await ready.grammar(ANY_OBJECT)
    with pytest.raises(CompilerBusy):
        await ready.grammar(ANY_OBJECT)
    may_end.set()
    ready._config = GrammarConfig()
    assert (await ready.grammar(ANY_OBJECT)).allowed(()).any()
    ready.close()
