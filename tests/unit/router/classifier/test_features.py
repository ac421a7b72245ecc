"""Hashed features: the same on every machine, bounded, and blind to what they should not see."""

from __future__ import annotations

import hashlib

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from services.router.classifier.features import MAX_CHARACTERS, NUM_BUCKETS, bounded, features_of

TEXT = "Write a function that sorts 12 names.\n\tif x == 'ä': 漢字を書く"


def digest(text: str) -> str:
    ids = np.sort(features_of(text).ids_F).astype("<u4")
    return hashlib.sha256(ids.tobytes()).hexdigest()[:16]


def test_ids_are_the_ones_that_the_weights_were_trained_for() -> None:
    """A change here means FORMAT of the model rises, and new weights."""
    assert digest(TEXT) == "d80ee16d8a0f62fd"


def test_which_number_it_is_makes_no_difference() -> None:
    assert digest("12 apples and 345 pears") == digest("98 apples and 761 pears")
    assert digest("١٢") == digest("12") == digest("１２")


def test_case_makes_no_difference() -> None:
    assert digest("WRITE A POEM") == digest("write a poem")


def test_other_words_do() -> None:
    assert digest("write a poem") != digest("write a program")


def test_the_middle_of_a_long_text_is_left_out() -> None:
    head, tail = "def f(x):\n" * 300, "Explain this. " * 300
    assert digest(head + "a b c " * 20_000 + tail) == digest(head + "x y z " * 50_000 + tail)


@given(st.text(max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_text_has_features_of_known_length(text: str) -> None:
    features = features_of(text)
    assert features.ids_F.shape == features.values_F.shape
    assert np.isfinite(features.values_F).all()
    squares = float((features.values_F**2).sum())
    if text:
        # One for characters, one for the shape, one for words where there are any.
        assert min(abs(squares - 2), abs(squares - 3)) < 1e-3
        assert features.ids_F.max() < NUM_BUCKETS
    else:
        assert squares == 0


def test_a_lone_surrogate_is_a_character_like_others() -> None:
    assert features_of("\ud800 x").ids_F.size


@given(st.text(max_size=50), st.integers(0, 30))
def test_bounded_keeps_both_ends(text: str, limit: int) -> None:
    short = bounded(text, limit)
    assert len(short) == min(len(text), limit)
    if len(text) > limit:
        half = limit // 2
        assert text.startswith(short[:half])
        assert text.endswith(short[half:])


def test_features_are_bounded_for_any_length() -> None:
    assert features_of("abc def ghi " * 100_000).ids_F.size <= 7 * MAX_CHARACTERS
