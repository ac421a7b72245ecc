"""Where the context KV of sessions lies, and the passes that write and read it.

A session's rows are numbered from the first position it was given, so that nothing but
its own rows is ever visible; positions, which the rotary embedding needs, stay absolute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from services.target.kv.pool import KVPool
from services.target.model.spec import BLOCK, ModelSpec
from services.target.model.step import TILE, Pass

_EMPTY = 0  # the block that nobody gets: zeros, for rows given up


@dataclass(slots=True)
class Context:
    """Rows of one session: row r is position first + r."""

    first: int
    num_rows: int = 0
    blocks: list[int] = field(default_factory=list)  # of rows 0, 16, 32, ...
    num_given_up: int = 0  # leading blocks that the window has passed


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive rows of one session in a pass. Each sees those before it; where not causal, all of the span too."""

    context: Context
    first_row: int
    count: int
    is_causal: bool = True


class ContextPool:
    """Memory for `max_sessions` windows, reserved at the start and touched as it comes into use."""

    def __init__(
        self,
        spec: ModelSpec,
        max_sessions: int,
        window: int,
        spare_rows: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """`spare_rows`: rows beyond the window that one call of `extend` or a draft needs."""
        self._window = window
        self._group = spec.heads // spec.kv_heads
        self._device = device
        per_session = -(-(window + spare_rows) // BLOCK) + 2
        self.kv = KVPool(spec, 1 + max_sessions * per_session, dtype, device)
        self._free = list(range(self.kv.num_blocks - 1, _EMPTY, -1))

    @property
    def num_free_blocks(self) -> int:
        return len(self._free)

    def reach(self, context: Context, num_rows: int) -> None:
        """Gives the context blocks for its first `num_rows` rows. Raises RuntimeError when none are left."""
        missing = -(-num_rows // BLOCK) - len(context.blocks)
        if missing > len(self._free):
            raise RuntimeError("the context memory is used up")
        for _ in range(missing):
            context.blocks.append(self._free.pop())

    def slide(self, context: Context) -> None:
        """Gives up the blocks that no row from the newest on can see."""
        passed = max(context.num_rows - 1 - self._window, 0) // BLOCK
        for index in range(context.num_given_up, min(passed, len(context.blocks))):
            self._free.append(context.blocks[index])
            context.blocks[index] = _EMPTY
            context.num_given_up = index + 1

    def release(self, context: Context) -> None:
        self._free.extend(context.blocks[context.num_given_up :])
        context.blocks = []

    def writing(self, spans: Sequence[Span]) -> Pass:
        """For `Attention.rotate`: where the rows go, and their positions."""
        positions: list[int] = []
        slots: list[int] = []
        for span in spans:
            blocks, first = span.context.blocks, span.context.first
            for row in range(span.first_row, span.first_row + span.count):
                positions.append(first + row)
                slots.append(blocks[row // BLOCK] * BLOCK + row % BLOCK)
        return self._pass(positions, slots, [], [], [0])

    def reading(self, spans: Sequence[Span]) -> Pass:
        """For `Attention.attend`: which rows each query sees."""
        newest: list[int] = []
        tables: list[list[int]] = []
        tiles: list[tuple[int, int, int]] = []
        starts = [0]
        tile_rows = max(1, TILE // self._group)
        for index, span in enumerate(spans):
            start, last = len(newest), span.first_row + span.count - 1
            newest.extend(range(span.first_row, last + 1) if span.is_causal else [last] * span.count)
            tables.append(span.context.blocks[: last // BLOCK + 1])
            tiles.extend((start + r, min(tile_rows, span.count - r), index) for r in range(0, span.count, tile_rows))
            starts.append(len(newest))
        return self._pass(newest, [], tables, tiles, starts)

    def _pass(
        self,
        positions: list[int],
        slots: list[int],
        tables: list[list[int]],
        tiles: list[tuple[int, int, int]],
        starts: list[int],
    ) -> Pass:
        width = max((len(table) for table in tables), default=0)
        padded = [table + [_EMPTY] * (width - len(table)) for table in tables]
        none = torch.empty(0, dtype=torch.int64)
        return Pass(
            tokens_N=none,
            positions_N=self._tensor(positions),
            slots_N=self._tensor(slots),
            tables_SM=self._tensor(padded),
            tiles_T3=self._tensor(tiles),
            logit_rows_Q=none,
            segment_starts=tuple(starts),
            last_position=max(positions),
        )

    def _tensor(self, values: Sequence[object]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32).to(self._device, non_blocking=True)
