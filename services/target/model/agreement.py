"""Whether paged attention gives what the model gives by itself.

Families differ in ways that no configuration tells: attention over both
directions, biases by distance, states beside the KV cache, layers that run
twice. Such a model must be refused, never be served wrong.
"""

from __future__ import annotations

from typing import Protocol

import torch

from services.target.kv.pool import KVPool
from services.target.model.forward import Forward
from services.target.model.layout import lay_out
from services.target.model.spec import BLOCK
from services.target.model.step import Segment

_SEED = 77
_LENGTH = 24  # one block and a half
_PREFILL = 20
# Of the logits' spread. Half precision rounds more with every layer; a wrong attention is off by most of it.
_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-3}
_COARSE_TOLERANCE = 0.08


class SelfContained(Forward, Protocol):
    def plain_logits(self, tokens: list[int]) -> torch.Tensor:
        """[tokens, vocabulary] fp32, without paging, cache or company."""


@torch.inference_mode()
def check_agreement(forward: SelfContained, dtype: torch.dtype, device: torch.device) -> None:
    """Raises ValueError when a prompt in a batch, or its continuation row by row, gets other logits."""
    try:
        error = _largest_error(forward, dtype, device)
    except Exception as failure:  # whatever a foreign family may raise in a pass that it was not made for
        raise ValueError(
            f"target: this family cannot run with paged attention ({type(failure).__name__}: {failure})"
        ) from failure
    if not error <= _TOLERANCE.get(dtype, _COARSE_TOLERANCE):
        raise ValueError(
            f"target: this family gives other logits with paged attention (off by {error:.2g} of their spread); "
            "causal softmax attention over one KV cache is needed"
        )


def _largest_error(forward: SelfContained, dtype: torch.dtype, device: torch.device) -> float:
    spec = forward.spec
    generator = torch.Generator().manual_seed(_SEED)
    length = min(_LENGTH, spec.max_positions)
    prefill = min(_PREFILL, length - 1)
    # The middle of the vocabulary: special tokens, which may stand for an image, lie at its ends.
    tokens, other = (
        torch.randint(spec.vocabulary // 8, spec.vocabulary // 2, (length,), generator=generator).tolist() for _ in "12"
    )
    pool = KVPool(spec, 4 * -(-length // BLOCK), dtype, device)
    mine, theirs = [3, 1], [0, 2]

    def run(*segments: Segment) -> torch.Tensor:
        return forward.forward(lay_out(segments, spec.heads // spec.kv_heads, device), pool).logits_QV

    paged = [run(Segment(other[:9], 0, theirs, ()), Segment(tokens[:prefill], 0, mine, range(prefill)))]
    paged += [run(Segment(tokens[at : at + 1], at, mine, (0,))) for at in range(prefill, length)]
    expected_QV = forward.plain_logits(tokens)
    spread = (expected_QV - expected_QV.mean(-1, keepdim=True)).norm(dim=-1)
    return float(((torch.cat(paged) - expected_QV).norm(dim=-1) / spread).max())
