"""Checks of what targets send, against the bounds that hold for every message.

What depends on a session's state is checked by `intake`.
"""

from __future__ import annotations

import math

from protos import drafting_pb2 as pb
from services.drafters.drafter import Features, Traits

NEWEST_PROTOCOL = 1
OLDEST_PROTOCOL = 1
MAX_PLACES = 64  # one lease, one sequence for each choice
MAX_TEMPERATURE = 100.0
ITEM_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


class EntryFault(Exception):
    """Why an entry is not carried out; told to the target for that sequence alone."""

    def __init__(self, code: pb.FaultCode.ValueType, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


def malformed(detail: str) -> EntryFault:
    return EntryFault(pb.FAULT_CODE_MALFORMED, detail)


def agree_protocol(newest: int, oldest: int) -> int:
    """The newest version that both sides speak. Raises ValueError when there is none."""
    chosen = min(newest, NEWEST_PROTOCOL)
    if oldest > newest or chosen < max(oldest, OLDEST_PROTOCOL):
        raise ValueError(
            f"protocol: the caller speaks versions {oldest} to {newest}, this drafter {OLDEST_PROTOCOL} to "
            f"{NEWEST_PROTOCOL}; upgrade the older side"
        )
    return chosen


def check_hello(hello: pb.TargetHello, traits: Traits) -> None:
    """Raises ValueError when this drafter cannot serve that target."""
    if hello.vocabulary < 1:
        raise ValueError(f"vocabulary: {hello.vocabulary} is out of range; it must be at least 1")
    if traits.vocabulary and hello.vocabulary != traits.vocabulary:
        raise ValueError(f"vocabulary: the target has {hello.vocabulary} tokens, the drafter {traits.vocabulary}")
    if traits.feature_layers and hello.hidden_size < 1:
        raise ValueError(f"hidden_size: {hello.hidden_size} is out of range; it must be at least 1")
    if traits.hidden_size and hello.hidden_size != traits.hidden_size:
        raise ValueError(f"hidden_size: the target's is {hello.hidden_size}, the drafter's {traits.hidden_size}")


def check_open(entry: pb.Entry) -> None:
    """Raises EntryFault."""
    wanted = entry.open
    if entry.base != 0:
        raise malformed(f"open: base is {entry.base}; it must be 0")
    if not (math.isfinite(wanted.temperature) and 0.0 <= wanted.temperature <= MAX_TEMPERATURE):
        raise malformed(f"temperature: it must be at least 0 and at most {MAX_TEMPERATURE}")
    if not 0.0 < wanted.top_p <= 1.0:
        raise malformed("top_p: it must be greater than 0 and at most 1")


def checked_tokens(base: int, message: pb.Append | pb.CatchUp, vocabulary: int, max_position: int) -> tuple[int, ...]:
    """The token ids of an append or a catch-up. Raises EntryFault."""
    tokens = tuple(message.tokens)
    if not tokens:
        raise malformed("tokens: there are none")
    if max(tokens) >= vocabulary:
        raise malformed(f"tokens: {max(tokens)} is out of range; ids must be below {vocabulary}")
    if max_position and base + len(tokens) > max_position:
        raise malformed(f"tokens: they end at position {base + len(tokens)}; at most {max_position} are taken")
    return tokens


def checked_features(message: pb.Append | pb.CatchUp, end: int, traits: Traits, hidden_size: int) -> Features | None:
    """The hidden states of an append or a catch-up whose tokens end before position `end`. Raises EntryFault."""
    if not message.HasField("features"):
        return None
    tensor = message.features
    if not traits.feature_layers:
        raise malformed("features: this drafter takes none")
    item = ITEM_BYTES.get(tensor.dtype)
    if item is None:
        raise malformed(f"features.dtype: it must be one of {', '.join(ITEM_BYTES)}")
    shape = tuple(tensor.shape)
    layers = len(traits.feature_layers)
    if len(shape) != 3 or shape[0] < 1 or shape[1:] != (layers, hidden_size):
        raise malformed(f"features.shape: it must be [rows, {layers}, {hidden_size}] with at least one row")
    if math.prod(shape) * item != len(tensor.data):
        raise malformed(f"features.data: {len(tensor.data)} bytes do not fit the shape and dtype")
    if message.first_feature + shape[0] >= end:
        raise malformed("features: they must end before the newest token, which has none yet")
    return Features(message.first_feature, tensor.dtype, (shape[0], shape[1], shape[2]), tensor.data)
