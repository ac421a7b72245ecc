"""One forward pass: which rows it has and what it gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

TILE = 8  # query vectors of one sequence that the attention kernel handles together


@dataclass(frozen=True, slots=True)
class Segment:
    """The consecutive rows of one sequence in a pass."""

    tokens: Sequence[int]
    first_position: int
    blocks: Sequence[int]  # ids of the KV blocks of positions 0, 16, 32, ...
    logit_rows: Sequence[int]  # which of its rows need logits, ascending


@dataclass(frozen=True, slots=True)
class Pass:
    """Rows of all segments, laid out for the device.

    tokens_N, positions_N  [rows] int64 / int32
    slots_N      [rows] int32, block id * BLOCK + offset where a row's KV goes
    tables_SM    [segments, blocks] int32
    segment_starts [segments + 1] row offsets
    tiles_T3     [tiles, 3] int32: first row, rows, segment
    logit_rows_Q [logit rows] int64
    capture      layer outputs to return for every row; -1 is the final one
    """

    tokens_N: torch.Tensor
    positions_N: torch.Tensor
    slots_N: torch.Tensor
    tables_SM: torch.Tensor
    tiles_T3: torch.Tensor
    logit_rows_Q: torch.Tensor
    segment_starts: tuple[int, ...]
    last_position: int
    capture: tuple[int, ...] = ()
    capture_postnorm: bool = False


@dataclass(frozen=True, slots=True)
class PassResult:
    """logits_QV [logit rows, vocabulary] fp32; features_NTD [rows, captured layers, hidden] or None."""

    logits_QV: torch.Tensor
    features_NTD: torch.Tensor | None
