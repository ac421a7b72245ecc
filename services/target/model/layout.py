"""Turns segments into the flat tensors of a pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from services.target.model.spec import BLOCK
from services.target.model.step import TILE, Pass, Segment


def lay_out(
    segments: Sequence[Segment],
    group: int,
    device: torch.device,
    capture: tuple[int, ...] = (),
    capture_postnorm: bool = False,
) -> Pass:
    """`group` is the number of query heads that share a KV head."""
    counts = [len(s.tokens) for s in segments]
    starts = np.concatenate(([0], np.cumsum(counts)))
    rows = int(starts[-1])
    tokens = np.empty(rows, np.int64)
    positions = np.empty(rows, np.int32)
    slots = np.empty(rows, np.int32)
    tables = np.zeros((len(segments), max(len(s.blocks) for s in segments)), np.int32)
    logit_rows: list[int] = []
    tiles: list[tuple[int, int, int]] = []
    tile_rows = max(1, TILE // group)
    for index, segment in enumerate(segments):
        start, count = int(starts[index]), counts[index]
        at = slice(start, start + count)
        own = np.arange(segment.first_position, segment.first_position + count, dtype=np.int32)
        tokens[at] = segment.tokens
        positions[at] = own
        tables[index, : len(segment.blocks)] = segment.blocks
        slots[at] = tables[index, own // BLOCK] * BLOCK + own % BLOCK
        logit_rows.extend(start + row for row in segment.logit_rows)
        tiles.extend((start + r, min(tile_rows, count - r), index) for r in range(0, count, tile_rows))

    def tensor(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(device, non_blocking=True)

    return Pass(
        tokens_N=tensor(tokens),
        positions_N=tensor(positions),
        slots_N=tensor(slots),
        tables_SM=tensor(tables),
        tiles_T3=tensor(np.array(tiles, np.int32)),
        logit_rows_Q=tensor(np.array(logit_rows, np.int64)),
        segment_starts=tuple(int(s) for s in starts),
        last_position=int(positions.max()),
        capture=capture,
        capture_postnorm=capture_postnorm,
    )
