"""Hidden states beside the KV cache, so that a prompt found there reaches drafters as one that was computed.

A block's rows are written with its KV and believed as long: where the KV of a position
has been committed, its hidden states are those of the same tokens.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from services.target.model.spec import BLOCK

_ALL = (1 << BLOCK) - 1


@dataclass(frozen=True, slots=True)
class Capture:
    """Layer outputs that a pass returns for every row, -1 the final one; empty: none."""

    layers: tuple[int, ...] = ()
    postnorm: bool = False


@dataclass(slots=True)
class _Place:
    index: int
    valid: int = 0  # a bit for each position of the block


class HiddenStates:
    """Rows [layers, hidden] on the CPU for the blocks used last, in bounded memory.

    Memory is touched, and so resident, only as it comes into use.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.capture = Capture()
        self._rows = torch.empty(0, BLOCK, 0, 0)  # [places, BLOCK, layers, hidden]
        self._places: OrderedDict[int, _Place] = OrderedDict()  # by block, used longest ago first
        self._unused: list[int] = []

    def write(self, capture: Capture, blocks: Sequence[int], first: int, rows_NTD: torch.Tensor) -> None:
        """Rows of the positions first, first + 1, ... of a sequence with those blocks."""
        if capture != self.capture or self._rows.shape[2:] != rows_NTD.shape[1:]:
            self._begin(capture, rows_NTD)
        if not self._rows.shape[0]:
            return
        done = 0
        for block, low, high in _parts(blocks, first, rows_NTD.shape[0]):
            place = self._place(block)
            self._rows[place.index, low:high] = rows_NTD[done : done + high - low]
            place.valid |= _bits(low, high)
            done += high - low

    def forget(self, blocks: Sequence[int], first: int, count: int) -> None:
        """KV of these positions was written without their hidden states."""
        for block, low, high in _parts(blocks, first, count):
            place = self._places.get(block)
            if place is not None:
                place.valid &= ~_bits(low, high)

    def newest(self, blocks: Sequence[int], first: int, end: int) -> tuple[int, torch.Tensor] | None:
        """As many rows before position `end` as are held without a gap, from `first` on at most.

        Returns (position of the first row, [rows, layers, hidden]), None where there are none.
        """
        parts: list[torch.Tensor] = []
        start = end
        for block, low, high in reversed(list(_parts(blocks, first, end - first))):
            place = self._places.get(block)
            if place is None:
                break
            self._places.move_to_end(block)
            held = low
            missing = ~place.valid & _bits(low, high)
            if missing:
                held = missing.bit_length()  # after the newest position that is missing
            if held < high:
                parts.append(self._rows[place.index, held:high])
                start -= high - held
            if missing:
                break
        return (start, torch.cat(parts[::-1])) if parts else None

    def _begin(self, capture: Capture, rows_NTD: torch.Tensor) -> None:
        """Other layers are wanted than before: nothing that is held is of use."""
        shape = (BLOCK, *rows_NTD.shape[1:])
        size = int(np.prod(shape)) * rows_NTD.element_size()
        places = self._limit_bytes // size
        self.capture = capture
        if places:
            # Through numpy, whose zeros are pages that the system gives when they are touched.
            memory = torch.from_numpy(np.zeros(places * size, np.uint8))
            self._rows = memory.view(rows_NTD.dtype).view(places, *shape)
        else:
            self._rows = rows_NTD.new_empty(0, *shape)
        self._places.clear()
        self._unused = list(range(places - 1, -1, -1))

    def _place(self, block: int) -> _Place:
        place = self._places.get(block)
        if place is None:
            index = self._unused.pop() if self._unused else self._places.popitem(last=False)[1].index
            place = self._places[block] = _Place(index)
        self._places.move_to_end(block)
        return place


def _parts(blocks: Sequence[int], first: int, count: int) -> Iterator[tuple[int, int, int]]:
    """(block, low, high) for the positions first .. first + count - 1."""
    end = first + count
    while first < end:
        low = first % BLOCK
        high = min(low + end - first, BLOCK)
        yield blocks[first // BLOCK], low, high
        first += high - low


def _bits(low: int, high: int) -> int:
    return (_ALL >> (BLOCK - (high - low))) << low
