"""Packs the entries of one engine step into frames below the message limit."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from protos import drafting_pb2 as pb
from services.target.drafting.features import DTYPES, to_bytes
from services.target.drafting.interface import DraftingContext

_ENTRY_BYTES = 128  # everything but tokens and hidden states, generously
_TOKEN_BYTES = 5  # longest varint of 32 bits
_ENTRIES_PER_FRAME = 512  # every drafter takes so many
_FRAME_SHARE = 0.9  # of the message limit; the rest is slack for the frame itself


class FramePacker:
    """Entries of one sequence stay in order across the frames."""

    def __init__(self, max_message_bytes: int, first_frame: int) -> None:
        self._limit = int(max_message_bytes * _FRAME_SHARE)
        self._next_frame = first_frame
        self._frames: list[pb.TargetFrame] = []
        self._size = 0

    def __bool__(self) -> bool:
        return bool(self._frames)

    def open(self, sequence: int, epoch: int, context: DraftingContext, lease: bytes) -> None:
        entry = self._entry(sequence, epoch, 0, _ENTRY_BYTES + len(lease))
        message = entry.open
        message.lease = lease
        message.temperature = context.temperature
        message.noise_key = context.noise_key
        message.top_k = context.top_k
        message.top_p = context.top_p

    def extend(
        self,
        sequence: int,
        epoch: int,
        base: int,
        tokens: Sequence[int],
        *,
        catches_up: bool,
        features_RTD: torch.Tensor | None = None,
        first_feature: int = 0,
    ) -> None:
        """An append or a catch-up."""
        size = _ENTRY_BYTES + _TOKEN_BYTES * len(tokens) + (0 if features_RTD is None else features_RTD.nbytes)
        entry = self._entry(sequence, epoch, base, size)
        message: pb.Append | pb.CatchUp = entry.catch_up if catches_up else entry.append
        message.tokens.extend(tokens)
        if features_RTD is not None:
            message.first_feature = first_feature
            message.features.dtype = DTYPES[features_RTD.dtype]
            message.features.shape.extend(features_RTD.shape)
            message.features.data = to_bytes(features_RTD)

    def ask(self, sequence: int, epoch: int, base: int, max_draft: int, deadline_us: int) -> int:
        """Returns the number of the frame that carries it."""
        entry = self._entry(sequence, epoch, base, _ENTRY_BYTES)
        entry.ask.max_draft = max_draft
        entry.ask.deadline_us = deadline_us
        return self._next_frame - 1

    def close(self, sequence: int, epoch: int) -> None:
        self._entry(sequence, epoch, 0, _ENTRY_BYTES).close.SetInParent()

    def frames(self) -> list[bytes]:
        return [frame.SerializeToString() for frame in self._frames]

    @property
    def next_frame(self) -> int:
        return self._next_frame

    def _entry(self, sequence: int, epoch: int, base: int, size: int) -> pb.Entry:
        is_full = not self._frames or len(self._frames[-1].round.entries) >= _ENTRIES_PER_FRAME
        if is_full or self._size + size > self._limit:
            frame = pb.TargetFrame()
            frame.round.frame = self._next_frame
            self._next_frame += 1
            self._frames.append(frame)
            self._size = 0
        self._size += size
        entry = self._frames[-1].round.entries.add()
        entry.sequence = sequence
        entry.epoch = epoch
        entry.base = base
        return entry
