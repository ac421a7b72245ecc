from __future__ import annotations

import functools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from services.target.text import Detokenizer, StopHit, StopScanner

SPECIAL = "<end>"
PIECES = ["▁the", "▁cat", "▁", "s", "!", "é", "🙂", "�"]


@functools.cache
def byte_level() -> PreTrainedTokenizerFast:
    """A token for each byte, a few merged ones, one special."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("Ã", "©"), ("ð", "Ł")]
    tokens = [*alphabet, *("".join(pair) for pair in merges)]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(SPECIAL, special=True)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


@functools.cache
def byte_fallback() -> PreTrainedTokenizerFast:
    """Words that carry their space, bytes where no word fits, and a decoder that strips the first space."""
    tokens = [*PIECES, *(f"<0x{byte:02X}>" for byte in range(256)), "<unk>"]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(SPECIAL, special=True)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def byte_ids(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    """One token a byte, as for characters that the vocabulary lacks."""
    if tokenizer is byte_fallback():
        return [tokenizer.convert_tokens_to_ids(f"<0x{byte:02X}>") for byte in text.encode()]
    spell = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return [tokenizer.convert_tokens_to_ids(c) for c in spell.pre_tokenize_str(text)[0][0]] if text else []


def decode(tokenizer: PreTrainedTokenizerFast, tokens: list[int]) -> str:
    return tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def run(tokenizer: PreTrainedTokenizerFast, prompt: list[int], output: list[int]) -> list[str]:
    detokenizer = Detokenizer(tokenizer, prompt)
    return [*(detokenizer.push(token) for token in output), detokenizer.flush()]


def check(tokenizer: PreTrainedTokenizerFast, prompt: list[int], output: list[int]) -> None:
    whole = decode(tokenizer, [*prompt, *output])
    assert "".join(run(tokenizer, prompt, output)) == whole[len(decode(tokenizer, prompt)) :]


TOKENS = st.integers(0, len(byte_level()) - 1)
TEXTS = st.text(st.sampled_from("ab é你好🙂👩‍👩‍👧\n"), max_size=14)


@given(st.lists(st.integers(97, 122), max_size=6), st.lists(TOKENS, max_size=40))
@settings(max_examples=400)
@example([], [])
def test_any_tokens_give_the_text_of_all_of_them(prompt: list[int], output: list[int]) -> None:
    check(byte_level(), [byte_ids(byte_level(), chr(c))[0] for c in prompt], output)


@pytest.mark.parametrize("tokenizer", [byte_level, byte_fallback])
@given(prompt=TEXTS, output=TEXTS)
@settings(max_examples=150)
@example(prompt="", output="你好你好你好你好你好你好你好你好")
@example(prompt="a", output="🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂")
@example(prompt="好", output="é" * 20)
def test_characters_split_over_bytes_come_whole(tokenizer, prompt: str, output: str) -> None:  # type: ignore[no-untyped-def]
    prompt_ids, output_ids = byte_ids(tokenizer(), prompt), byte_ids(tokenizer(), output)
    check(tokenizer(), prompt_ids, output_ids)
    assert not any("�" in piece for piece in run(tokenizer(), prompt_ids, output_ids))


@given(st.lists(st.sampled_from(PIECES), max_size=6), st.lists(st.sampled_from([*PIECES, SPECIAL]), max_size=40))
@example([], ["▁", "▁the"])
@example(["s"], [SPECIAL, "▁the"])
@example(["s"], [*[SPECIAL] * 40, "▁the", *[SPECIAL] * 5, "▁cat"])
def test_spaces_and_special_tokens(prompt: list[str], output: list[str]) -> None:
    tokenizer = byte_fallback()
    whole = decode(tokenizer, tokenizer.convert_tokens_to_ids([*prompt, *output]))
    shown = "".join(run(tokenizer, tokenizer.convert_tokens_to_ids(prompt), tokenizer.convert_tokens_to_ids(output)))
    assert whole.endswith(shown)
    assert len(whole) - len(shown) == len(decode(tokenizer, tokenizer.convert_tokens_to_ids(prompt)))


def test_text_comes_with_the_token_that_completes_it() -> None:
    tokenizer = byte_level()
    ids = byte_ids(tokenizer, "a🙂b")
    assert run(tokenizer, [], ids) == ["a", "", "", "", "🙂", "b", ""]
    assert run(tokenizer, [], ids[:3]) == ["a", "", "", "�"]


def test_broken_bytes_do_not_hold_text_back_for_ever() -> None:
    tokenizer = byte_level()
    stray = [byte_ids(tokenizer, "🙂")[1]] * 200
    pieces = run(tokenizer, [], stray)
    assert "".join(pieces[:100])
    assert "".join(pieces) == decode(tokenizer, stray)


def test_a_replacement_character_may_be_meant() -> None:
    tokenizer = byte_level()
    assert "".join(run(tokenizer, [], byte_ids(tokenizer, "a" + "�" * 40 + "b"))) == "a" + "�" * 40 + "b"


def scan(pieces: list[str], stops: list[str], include_stop: bool) -> tuple[str, str | None]:
    """Text shown and the stop that ended it."""
    scanner = StopScanner(stops, include_stop=include_stop)
    shown = ""
    for piece in pieces:
        got = scanner.push(piece)
        if isinstance(got, StopHit):
            return shown + got.text, got.stop
        shown += got
    return shown + scanner.flush(), None


def brute_force(text: str, stops: list[str], include_stop: bool) -> tuple[str, str | None]:
    """Character by character: the first stop to be complete, the longest of those."""
    for end in range(len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            stop = max(complete, key=len)
            return text[: end if include_stop else end - len(stop)], stop
    return text, None


PIECE_LISTS = st.lists(st.text("abc", max_size=4), max_size=12)


@given(PIECE_LISTS, st.lists(st.text("abc", min_size=1, max_size=4), max_size=4), st.booleans())
@settings(max_examples=500)
@example(["ab", "abc"], ["abc"], False)
@example(["a", "a", "b"], ["aab", "ab"], False)
def test_stops_are_found_wherever_pieces_end(pieces: list[str], stops: list[str], include_stop: bool) -> None:
    assert scan(pieces, stops, include_stop) == brute_force("".join(pieces), stops, include_stop)


@given(PIECE_LISTS, st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=4))
def test_only_the_start_of_a_stop_is_held_back(pieces: list[str], stops: list[str]) -> None:
    scanner, shown, text = StopScanner(stops, include_stop=False), "", ""
    for piece in pieces:
        text += piece
        got = scanner.push(piece)
        if isinstance(got, StopHit):
            return
        shown += got
        held = text[len(shown) :]
        assert text.startswith(shown)
        assert held == "" or any(stop.startswith(held) for stop in stops)


def test_no_stop_holds_nothing() -> None:
    scanner = StopScanner((), include_stop=False)
    assert [scanner.push("ab"), scanner.push("c"), scanner.flush()] == ["ab", "c", ""]


def test_include_stop_keeps_it_and_no_more() -> None:
    for include, text in ((False, "x"), (True, "xEND")):
        scanner = StopScanner(["END"], include_stop=include)
        assert scanner.push("xEN") == "x"
        assert scanner.push("D and more") == StopHit("END", text[1:])
