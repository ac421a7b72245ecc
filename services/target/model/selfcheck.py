"""Proves, on the machine it runs on, that a row's logits do not depend on its company.

Only what is proved is claimed: products are split into the row counts that
were compared bit for bit, and whole passes are compared for every way in which
a position can come to be computed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import cycle, islice, repeat
from typing import Literal

import torch

from services.target.kv.pool import KVPool
from services.target.model.forward import Forward
from services.target.model.layout import lay_out
from services.target.model.row_plan import RowPlan, find_row_plan
from services.target.model.spec import BLOCK
from services.target.model.step import Segment

Exactness = Literal["bitwise", "ties"]

_SEED = 20408
_PROMPT = 267  # crosses a split of the attention kernel (256 keys) and ends inside a block
_DECODED = 9
_ODD_CHUNKS = (1, 7, 32, 33, 64)


@dataclass(frozen=True, slots=True)
class Verdict:
    exactness: Exactness
    reason: str
    plan: RowPlan


@torch.inference_mode()
def check_exactness(forward: Forward, dtype: torch.dtype, device: torch.device, max_rows: int) -> Verdict:
    """Finds the row plan, sets it on `forward`, and compares whole passes under it."""
    generator = torch.Generator().manual_seed(_SEED)
    plan = find_row_plan(forward.matrices(), max_rows, dtype, device, generator)
    if plan is None:
        return Verdict("ties", "matrix products depend on the number of rows", forward.plan)
    forward.plan = plan
    broken = _compare_passes(forward, dtype, device, max_rows, generator)
    if broken:
        forward.plan = RowPlan()
        return Verdict("ties", f"logits differ {broken}", forward.plan)
    return Verdict("bitwise", f"rows padded to {plan.pad}, products of at most {plan.tile} rows", plan)


def _compare_passes(
    forward: Forward, dtype: torch.dtype, device: torch.device, max_rows: int, generator: torch.Generator
) -> str:
    """The first way of computing a position that changed its logits, or ''."""
    spec = forward.spec
    length = min(_PROMPT + _DECODED, spec.max_positions)
    prompt = length - _DECODED
    tokens = torch.randint(0, spec.vocabulary, (length,), generator=generator).tolist()
    other = torch.randint(0, spec.vocabulary, (length,), generator=generator).tolist()
    per_sequence = -(-length // BLOCK)
    pool = KVPool(spec, 2 * per_sequence, dtype, device)
    mine = list(range(per_sequence))
    theirs = list(range(2 * per_sequence - 1, per_sequence - 1, -1))
    group = spec.heads // spec.kv_heads

    def run(*segments: Segment) -> torch.Tensor:
        return forward.forward(lay_out(segments, group, device), pool).logits_QV

    def rows(source: list[int], blocks: list[int], start: int, end: int, logits: bool = True) -> Segment:
        return Segment(source[start:end], start, blocks, range(end - start) if logits else ())

    def prefill(chunks: Iterable[int]) -> None:
        start = 0
        for chunk in chunks:
            end = min(start + min(chunk, max_rows), prompt)
            if start < end:
                run(rows(tokens, mine, start, end, logits=False))
            start = end

    prefill(repeat(max_rows, prompt))
    reference = torch.cat([run(rows(tokens, mine, p, p + 1)) for p in range(prompt, length)])
    if not torch.equal(run(rows(tokens, mine, prompt, length)), reference):
        return "between one row and many rows of one sequence"
    run(rows(other, theirs, 0, prompt, logits=False))
    beside = run(
        rows(other, theirs, prompt, prompt + 1),
        rows(tokens, mine, prompt, length),
        rows(other, theirs, prompt - 40, prompt, logits=False) if prompt > 40 else rows(other, theirs, 0, 1),
    )
    if not torch.equal(beside[1 : 1 + _DECODED], reference):
        return "between a sequence alone and in a batch"
    prefill(islice(cycle(_ODD_CHUNKS), prompt))
    if not torch.equal(run(rows(tokens, mine, prompt, length)), reference):
        return "between prefill chunks of different sizes"
    return ""
