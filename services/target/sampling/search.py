"""Finds the tokens among which a position's noise decides, by a C kernel where there is one."""

from __future__ import annotations

import ctypes
import math

import torch

from services.sampling.choice import SLACK, Search, near_best
from services.sampling.noise import row_words
from services.target.kernels.build import Kernels

_ROUGH = 0.05  # more than the kernel's scores can be wrong by


class _DrawArgs(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("logits", "ids", "scores", "near")),
        *((name, ctypes.c_long) for name in ("count", "num_near")),
        *((name, ctypes.c_uint32) for name in ("first", "second")),
        ("slack", ctypes.c_float),
    ]


class NativeSearch:
    """One pass over the logits; its memory is kept for the next row. One thread uses it."""

    def __init__(self, kernels: Kernels) -> None:
        self._draw = kernels.get("draw", torch.float32)
        self._scores = torch.empty(0)
        self._near = torch.empty(0, dtype=torch.int64)

    def __call__(self, logits_M: torch.Tensor, ids_M: torch.Tensor, key: int, position: int) -> torch.Tensor:
        count = logits_M.shape[0]
        if self._scores.shape[0] < count:
            self._scores, self._near = torch.empty(count), torch.empty(count, dtype=torch.int64)
        logits_M, ids_M = logits_M.contiguous(), ids_M.contiguous()
        first, second = row_words(key, position)
        args = _DrawArgs(
            logits_M.data_ptr(),
            ids_M.data_ptr(),
            self._scores.data_ptr(),
            self._near.data_ptr(),
            count,
            0,
            first,
            second,
            math.log(SLACK) + _ROUGH,
        )
        self._draw(ctypes.byref(args))
        return self._near[: args.num_near].clone()


def make_search(kernels: Kernels | None) -> Search:
    return near_best if kernels is None else NativeSearch(kernels)
