"""What lies between the products of a layer, row by row: residual and norm, and the gate.

Shapes: N rows, D hidden size, F feed-forward size; D and F multiples of 16 for the kernel.
"""

from __future__ import annotations

import ctypes
from typing import Protocol

import torch
import torch.nn.functional as F

from services.target.kernels.build import Kernels

_LANES = 16


class RowOps(Protocol):
    def norm(self, x_ND: torch.Tensor, weight_D: torch.Tensor, eps: float) -> torch.Tensor:
        """RMS norm."""

    def add_norm(
        self, x_ND: torch.Tensor, change_ND: torch.Tensor, weight_D: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """x + change, and its RMS norm."""

    def gate(self, gate_up_NF: torch.Tensor) -> torch.Tensor:
        """[N, 2 F], gate half first -> silu(gate) * up."""


class TorchRowOps:
    def norm(self, x_ND: torch.Tensor, weight_D: torch.Tensor, eps: float) -> torch.Tensor:
        return F.rms_norm(x_ND, weight_D.shape, weight_D, eps)

    def add_norm(
        self, x_ND: torch.Tensor, change_ND: torch.Tensor, weight_D: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        sum_ND = x_ND + change_ND
        return sum_ND, self.norm(sum_ND, weight_D, eps)

    def gate(self, gate_up_NF: torch.Tensor) -> torch.Tensor:
        gate_NF, up_NF = gate_up_NF.chunk(2, dim=-1)
        return F.silu(gate_NF).mul_(up_NF)


class _NormArgs(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("x", "change", "weight", "sum", "out")),
        *((name, ctypes.c_long) for name in ("rows", "size")),
        ("eps", ctypes.c_float),
    ]


class _GateArgs(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("gate_up", "out")),
        *((name, ctypes.c_long) for name in ("rows", "size")),
    ]


class NativeRowOps:
    """The C kernels: one pass each, a row's bits depend on nothing but the row."""

    def __init__(self, kernels: Kernels, dtype: torch.dtype) -> None:
        self._norm, self._gate = kernels.get("norm", dtype), kernels.get("gate", dtype)

    def norm(self, x_ND: torch.Tensor, weight_D: torch.Tensor, eps: float) -> torch.Tensor:
        x_ND = x_ND.contiguous()
        out_ND = torch.empty_like(x_ND)
        args = _NormArgs(
            x_ND.data_ptr(), None, weight_D.data_ptr(), None, out_ND.data_ptr(), *_shape(x_ND), eps
        )  # fmt: skip
        self._norm(ctypes.byref(args))
        return out_ND

    def add_norm(
        self, x_ND: torch.Tensor, change_ND: torch.Tensor, weight_D: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        x_ND, change_ND = x_ND.contiguous(), change_ND.contiguous()
        sum_ND, out_ND = torch.empty_like(x_ND), torch.empty_like(x_ND)
        args = _NormArgs(
            x_ND.data_ptr(), change_ND.data_ptr(), weight_D.data_ptr(), sum_ND.data_ptr(), out_ND.data_ptr(),
            *_shape(x_ND), eps,
        )  # fmt: skip
        self._norm(ctypes.byref(args))
        return sum_ND, out_ND

    def gate(self, gate_up_NF: torch.Tensor) -> torch.Tensor:
        gate_up_NF = gate_up_NF.contiguous()
        rows, size = _shape(gate_up_NF)
        out_NF = gate_up_NF.new_empty(*gate_up_NF.shape[:-1], size // 2)
        args = _GateArgs(gate_up_NF.data_ptr(), out_NF.data_ptr(), rows, size // 2)
        self._gate(ctypes.byref(args))
        return out_NF


def make_row_ops(kernels: Kernels | None, dtype: torch.dtype, *sizes: int) -> RowOps:
    """The kernels where there are any and they suit all `sizes`, else torch."""
    if kernels is None or dtype not in (torch.bfloat16, torch.float32) or any(size % _LANES for size in sizes):
        return TorchRowOps()
    return NativeRowOps(kernels, dtype)


def _shape(x: torch.Tensor) -> tuple[int, int]:
    """Rows of the last dimension, and its size."""
    return x.numel() // x.shape[-1], x.shape[-1]
