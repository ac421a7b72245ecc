"""Measures the target's step: by decoding rows, by their context, and beside prompt rows."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator

import torch

from services.dcut.costs.steps import StepSample
from services.dcut.costs.store import Measured
from services.requests.sampling import SamplingParams
from services.target.kv.pool import KVPool
from services.target.model.layout import lay_out
from services.target.model.loader import LoadedTarget
from services.target.model.spec import BLOCK
from services.target.model.step import Segment
from services.target.sampling.pipeline import Rows, SamplingState, choose_tokens

# Both sides of the edges at which kernels take another tile: there the time may jump.
_ROWS = (1, 2, 3, 4, 5, 8, 9, 12, 16, 17, 24, 32, 33, 48, 64, 65, 96, 128, 129, 192, 256, 384, 512)
_SHORT = 256  # positions of context
_LONG = (1024, 4096)
_PROMPTS = (16, 64, 192)
_CROSS_ROWS = (1, 8, 32, 64)  # at which contexts and prompts are measured too
_WIDTH = 4  # rows of one sequence: an anchor and three drafts
_REPEATS = 5
_ODD = 7919  # token ids far apart; what they are does not matter


@torch.inference_mode()
def profile_steps(
    target: LoadedTarget, max_rows: int, max_sequences: int, kv_memory_mb: int, budget_s: float
) -> Measured:
    """Step times, each the median of five after one that does not count, within `budget_s` seconds.

    What matters most is measured first, so that a slow machine lacks only what is rarely met. A step
    is forward pass and choice of tokens; what else the engine does is learned from real steps.
    """
    spec = target.spec
    context = min(_SHORT, spec.max_positions // 2)
    most = min(max_rows, max_sequences * 17)
    pool = _pool(target, max(_CROSS_ROWS) // _WIDTH * _blocks(max(_LONG) + _WIDTH), kv_memory_mb)
    bench = _Bench(target, pool)
    deadline = time.perf_counter() + budget_s
    samples: list[StepSample] = []
    for rows, positions, prefill in _plan(context, most, max_rows, spec.max_positions):
        # One more round like this one would take its time six times over; the first is always measured.
        if samples and time.perf_counter() + (_REPEATS + 1) * samples[-1].seconds > deadline:
            return Measured(tuple(samples), is_complete=False)
        samples.append(StepSample(rows, positions, prefill, bench.seconds(rows, positions, prefill)))
    return Measured(tuple(samples), is_complete=True)


def _plan(context: int, most: int, max_rows: int, max_positions: int) -> Iterator[tuple[int, int, int]]:
    """Rows, context and prompt rows to measure, in the order of their importance."""
    counts = [rows for rows in _ROWS if rows < most] + [most]
    yield from ((rows, context, 0) for rows in counts if rows <= 64)
    cross = [rows for rows in _CROSS_ROWS if rows <= most]
    for prefill in _PROMPTS:
        yield from (
            (rows, context, prefill) for rows in cross if rows + prefill <= max_rows and prefill < max_positions
        )
    for longer in _LONG:
        yield from ((rows, longer, 0) for rows in cross if context < longer <= max_positions - _WIDTH)
    yield from ((rows, context, 0) for rows in counts if rows > 64)


def _pool(target: LoadedTarget, num_blocks: int, kv_memory_mb: int) -> KVPool:
    """As many blocks as the largest step reads, within the KV cache's bound, and all resident: others cost nothing."""
    spec, dtype = target.spec, target.dtype
    bound = max((kv_memory_mb << 20) // KVPool.bytes_per_block(spec, dtype), 1)
    pool = KVPool(spec, min(num_blocks, bound), dtype, target.device)
    for tensor in (pool.keys_LBKDP, pool.values_LBKPD):
        tensor.fill_(0.01)
    return pool


class _Bench:
    """Steps of sequences that share the pool's blocks: nobody reads what they compute."""

    def __init__(self, target: LoadedTarget, pool: KVPool) -> None:
        self._target = target
        self._pool = pool
        self._group = target.spec.heads // target.spec.kv_heads
        self._blocks = itertools.cycle(range(pool.num_blocks))

    def seconds(self, rows: int, context: int, prefill: int) -> float:
        widths = [_WIDTH] * (rows // _WIDTH) + ([rows % _WIDTH] if rows % _WIDTH else [])
        segments = [self._segment(width, context, range(width)) for width in widths]
        if prefill:
            segments.append(self._segment(prefill, 0, (prefill - 1,)))
        firsts = itertools.accumulate(widths, initial=0)
        params = SamplingParams(max_tokens=1, temperature=0.0, seed=0)
        batch = [
            Rows(SamplingState(params, 0, frozenset(), ()), first, context + 1, tuple(range(width - 1)))
            for first, width in zip(firsts, widths, strict=False)
        ]

        def step() -> None:
            layout = lay_out(segments, self._group, self._target.device)
            # The tokens come to the CPU, so the device has finished.
            choose_tokens(self._target.forward.forward(layout, self._pool).logits_QV, batch)

        step()
        return statistics.median(_timed(step) for _ in range(_REPEATS))

    def _segment(self, width: int, context: int, logit_rows: range | tuple[int, ...]) -> Segment:
        tokens = [(_ODD * (context + row)) % self._target.spec.vocabulary for row in range(width)]
        blocks = list(itertools.islice(self._blocks, _blocks(context + width)))
        return Segment(tokens, context, blocks, logit_rows)


def _timed(step: Callable[[], None]) -> float:
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


def _blocks(positions: int) -> int:
    return -(-positions // BLOCK)
