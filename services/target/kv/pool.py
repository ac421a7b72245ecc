"""The memory of the KV cache: one tensor of blocks for keys and one for values."""

from __future__ import annotations

import math
import mmap

import torch

from services.target.model.spec import BLOCK, ModelSpec


class KVPool:
    """Blocks of BLOCK positions for every layer.

    keys_LBKDP  [layers, blocks, kv heads, head size, BLOCK]
    values_LBKPD [layers, blocks, kv heads, BLOCK, head size]
    Memory is touched, and so resident, only as blocks come into use.
    """

    def __init__(self, spec: ModelSpec, num_blocks: int, dtype: torch.dtype, device: torch.device) -> None:
        if num_blocks < 1:
            raise ValueError(f"num_blocks: {num_blocks} is out of range; it must be at least 1")
        self.num_blocks = num_blocks
        shape = (spec.layers, num_blocks, spec.kv_heads)
        self.keys_LBKDP = _zeros((*shape, spec.head_dim, BLOCK), dtype, device)
        self.values_LBKPD = _zeros((*shape, BLOCK, spec.head_dim), dtype, device)

    @staticmethod
    def bytes_per_block(spec: ModelSpec, dtype: torch.dtype) -> int:
        return 2 * spec.layers * spec.kv_heads * spec.head_dim * BLOCK * dtype.itemsize


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """On a CPU small pages of the system, which it gives one by one as they are touched."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    pages = mmap.mmap(-1, math.prod(shape) * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(pages, dtype=dtype).view(shape)
