"""Tells a drafter what it lacks of a sequence: everything new, or after a loss its newest window."""

from __future__ import annotations

from collections.abc import Sequence

from services.drafters.drafter import Traits
from services.target.drafting.features import FeatureWindow, row_bytes
from services.target.drafting.frames import FramePacker
from services.target.drafting.state import DraftState

MAX_TOKENS_PER_ENTRY = 1 << 16


def fill_tokens(packer: FramePacker, sequence: int, state: DraftState, tokens: Sequence[int], window: int) -> bool:
    """For drafters that want no hidden states. Afterwards the drafter holds all tokens.

    Returns whether it had to catch up, that is, to drop what it held.
    """
    assert state.held is not None
    length = len(tokens)
    restarts = state.held == 0 or bool(window and length - state.held > window)
    if restarts and state.held:
        state.restart()
    base = max(length - window, 0) if restarts and window else state.held
    catches_up = restarts
    while base < length:
        end = min(base + MAX_TOKENS_PER_ENTRY, length)
        packer.extend(sequence, state.epoch, base, tokens[base:end], catches_up=catches_up)
        base, catches_up = end, False
    state.held = length
    return restarts


def fill_features(
    packer: FramePacker,
    sequence: int,
    state: DraftState,
    tokens: Sequence[int],
    features: FeatureWindow,
    traits: Traits,
    chunk_bytes: int,
) -> bool:
    """For drafters that want hidden states: as far as there are any.

    The drafter's hidden states end one position before its tokens. Afterwards it
    holds all tokens if and only if the window reaches the newest but one. Returns
    whether it had to catch up.
    """
    assert state.held is not None
    length = min(len(tokens), features.end + 1)
    if not len(features) or length - 1 <= features.first or length <= state.held:
        return False
    first = state.held - 1
    oldest = max(features.first, length - 1 - traits.window) if traits.window else features.first
    restarts = state.held == 0 or first < oldest
    if restarts:
        if state.held:
            state.restart()
        first = oldest
    base = first if restarts else state.held
    catches_up = restarts
    rows_per_entry = max(chunk_bytes // row_bytes(features.rows(first, first + 1)), 1)
    while first < length - 1:
        end = min(first + rows_per_entry, length - 1)
        packer.extend(
            sequence,
            state.epoch,
            base,
            tokens[base : end + 1],
            catches_up=catches_up,
            features_RTD=features.rows(first, end),
            first_feature=first,
        )
        base, first, catches_up = end + 1, end, False
    state.held = length
    return restarts
