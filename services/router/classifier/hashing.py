"""Integer hashes, vectorised; the same on every machine."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

UInts = npt.NDArray[np.uint32]

GOLDEN = 0x9E3779B1
_MIX_A, _MIX_B = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)


def salt(family: int) -> np.uint32:
    """Tells hashes of this family from those of others."""
    return np.uint32(family * GOLDEN & 0xFFFFFFFF)


def mixed(values: UInts, salted: np.uint32 | UInts) -> UInts:
    """A finaliser that spreads every bit over all others; `salted` tells families or places apart."""
    hashed = values + salted
    hashed ^= hashed >> np.uint32(16)
    hashed *= _MIX_A
    hashed ^= hashed >> np.uint32(13)
    hashed *= _MIX_B
    hashed ^= hashed >> np.uint32(16)
    return hashed
