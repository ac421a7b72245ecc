"""The noise of a position: Gumbel values by token id, the same on every machine.

Target and drafters draw it alike, so that a drafter guesses the very token
that the target will choose (drafter-invariant verification, arXiv 2408.07978):
    token_n = argmax_v ( log p_n(v) + G(key, n, v) )
It is counter-based: integer hashing of (key, position, id), no state to move.
"""

from __future__ import annotations

import hashlib

import torch

_MASK64 = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def noise_key(seed: int, choice: int) -> int:
    """64-bit key of one choice of a request. Choice 0 of n equals the single request."""
    digest = hashlib.blake2b(seed.to_bytes(8, "little") + choice.to_bytes(4, "little"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def uniform_bits(key: int, position: int, ids_M: torch.Tensor) -> torch.Tensor:
    """32 random bits for each token id, as int64 [M] in 0 .. 2^32 - 1."""
    first, second = row_words(key, position)
    x = ids_M.to(torch.int32) + _signed(first)
    x = _mix(x)
    x = _mix(x ^ _signed(second))
    return x.to(torch.int64) & 0xFFFFFFFF


def gumbel(bits_M: torch.Tensor) -> torch.Tensor:
    """Standard Gumbel noise, fp32 [M]: u in (0, 1), E = -log1p(-u) in fp64, G = -log E."""
    u = (bits_M.double() + 0.5) * 2.0**-32
    return (-torch.log(-torch.log1p(-u))).float()


def row_words(key: int, position: int) -> tuple[int, int]:
    """Two 32-bit words from key and position by a 64-bit finalizer (splitmix64)."""
    z = (key + (position + 1) * _GOLDEN) & _MASK64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK64
    z ^= z >> 31
    return z & 0xFFFFFFFF, z >> 32


def _mix(x: torch.Tensor) -> torch.Tensor:
    """A bijection of 32-bit words with low bias; int32 arithmetic wraps as unsigned does."""
    x = (x ^ _shift(x, 16)) * _signed(0x7FEB352D)
    x = (x ^ _shift(x, 15)) * _signed(0x846CA68B)
    return x ^ _shift(x, 16)


def _shift(x: torch.Tensor, by: int) -> torch.Tensor:
    """Logical right shift."""
    return (x >> by) & ((1 << (32 - by)) - 1)


def _signed(word: int) -> int:
    return word - (1 << 32) if word >= 1 << 31 else word
