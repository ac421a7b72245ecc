"""How many rows a matrix product may have so that each row's bits do not depend on the others.

Libraries pick another kernel, another tiling or another order of summation as
the number of rows grows. Within the counts that a self-check has proved, they
do not; larger passes are split, smaller ones padded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from services.target.model.matrix import Matrix

_TILES = (512, 256, 128, 64, 48, 32, 24, 16, 8, 4, 2, 1)
_PADS = (1, 4, 16)


@dataclass(frozen=True, slots=True)
class RowPlan:
    """Products are run with at least `pad` and at most `tile` rows; tile 0: as they come."""

    pad: int = 1
    tile: int = 0

    def multiply(self, x_NI: torch.Tensor, matrix: Matrix) -> torch.Tensor:
        """[rows, in] -> [rows, out]."""
        rows = x_NI.shape[0]
        if self.tile == 0 or self.pad <= rows <= self.tile:
            return matrix(x_NI)
        if rows <= self.tile:
            padded = x_NI.new_zeros(self.pad, x_NI.shape[1])
            padded[:rows] = x_NI
            return matrix(padded)[:rows]
        out_NO = x_NI.new_empty(rows, matrix.out_features)
        for start in range(0, rows, self.tile):
            out_NO[start : start + self.tile] = self.multiply(x_NI[start : start + self.tile], matrix)
        return out_NO


def candidates() -> Iterator[RowPlan]:
    """Plans to try, the cheapest first."""
    for pad in _PADS:
        yield from (RowPlan(pad, tile) for tile in _TILES if tile >= max(pad, 16))
    yield from (RowPlan(1, tile) for tile in _TILES if tile < 16)


def find_row_plan(
    matrices: list[Matrix], max_rows: int, dtype: torch.dtype, device: torch.device, generator: torch.Generator
) -> RowPlan | None:
    """The first plan under which every row of every product is bitwise what it is alone.

    `matrices`: one of each shape that the model multiplies with.
    """
    plans = [p for p in candidates() if p.tile <= max(max_rows, 16)]
    inputs = [torch.randn(max_rows, m.in_features, generator=generator).to(device, dtype) for m in matrices]
    return next((p for p in plans if all(_holds(p, x, m) for x, m in zip(inputs, matrices, strict=True))), None)


def _holds(plan: RowPlan, x_NI: torch.Tensor, matrix: Matrix) -> bool:
    tile = min(plan.tile, x_NI.shape[0])
    x_NI = x_NI[:tile]
    whole = plan.multiply(x_NI, matrix)
    # The fewest rows first: most plans fail there, and fail cheaply.
    return all(torch.equal(plan.multiply(x_NI[:n], matrix), whole[:n]) for n in _counts(tile)) and all(
        torch.equal(plan.multiply(x_NI[n - 1 : n], matrix), whole[n - 1 : n]) for n in _counts(tile)
    )


def _counts(tile: int) -> list[int]:
    """Every count to 64, then those around the multiples of 16, where kernels change."""
    edges = (n + d for n in range(80, tile + 1, 16) for d in (-1, 0, 1))
    return [*range(1, min(tile, 64) + 1), *(n for n in edges if n <= tile)]
