"""A weight matrix as the forward pass multiplies with it: as it is, or packed for this processor."""

from __future__ import annotations

import ctypes
from typing import Protocol

import torch
import torch.nn.functional as F

from services.target.kernels.build import Kernels

# Multiples that the C kernel wants of rows, inputs and outputs.
_ROWS, _DEPTH, _PANEL = 16, 32, 32
_PACK_ROWS = 16  # the row count that the packed layout is laid out for; others work too


class Matrix(Protocol):
    in_features: int
    out_features: int

    def __call__(self, x_NI: torch.Tensor) -> torch.Tensor:
        """[rows, in] -> [rows, out]."""


class PlainMatrix:
    def __init__(self, weight_OI: torch.Tensor, bias_O: torch.Tensor | None = None) -> None:
        self.out_features, self.in_features = weight_OI.shape
        self._weight_OI = weight_OI
        self._bias_O = bias_O

    def __call__(self, x_NI: torch.Tensor) -> torch.Tensor:
        return F.linear(x_NI, self._weight_OI, self._bias_O)


class PackedMatrix:
    """oneDNN's blocked layout for bf16 on CPU: no repacking in every product, about 1.4 times as fast."""

    @staticmethod
    def supports(weight_OI: torch.Tensor) -> bool:
        return (
            weight_OI.device.type == "cpu"
            and weight_OI.dtype == torch.bfloat16
            and torch.backends.mkldnn.is_available()
            and torch.ops.mkldnn._is_mkldnn_bf16_supported()
        )

    def __init__(self, weight_OI: torch.Tensor, bias_O: torch.Tensor | None = None) -> None:
        self.out_features, self.in_features = weight_OI.shape
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight_OI.contiguous(), _PACK_ROWS)
        self._bias_O = bias_O

    def __call__(self, x_NI: torch.Tensor) -> torch.Tensor:
        y_NO: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x_NI, self._packed, self._bias_O, "none", [], "")
        return y_NO


class _ProductArgs(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("x", "packed", "bias", "y")),
        *((name, ctypes.c_long) for name in ("rows", "outputs", "depth")),
    ]


class NativeMatrix:
    """The C kernel: a row's bits depend on nothing but the row, by construction."""

    @staticmethod
    def supports(weight_OI: torch.Tensor) -> bool:
        return weight_OI.device.type == "cpu" and weight_OI.dtype in (torch.bfloat16, torch.float32)

    def __init__(self, weight_OI: torch.Tensor, bias_O: torch.Tensor | None, kernels: Kernels) -> None:
        self.out_features, self.in_features = weight_OI.shape
        self._depth = -(-self.in_features // _DEPTH) * _DEPTH
        self._bias_O = None if bias_O is None else bias_O.contiguous()
        panels = -(-self.out_features // _PANEL)
        self._packed = torch.empty(panels * _PANEL * self._depth, dtype=weight_OI.dtype)
        weight_OI = weight_OI.contiguous()
        kernels.get("pack", weight_OI.dtype)(
            ctypes.c_void_p(weight_OI.data_ptr()),
            ctypes.c_long(self.out_features),
            ctypes.c_long(self.in_features),
            ctypes.c_void_p(self._packed.data_ptr()),
        )
        self._multiply = kernels.get("multiply", weight_OI.dtype)
        self._gather = kernels.get("gather", weight_OI.dtype)

    def rows(self, ids_N: torch.Tensor) -> torch.Tensor:
        """[ids] int64 -> [ids, in]: rows of the weight, as an embedding tied to it needs them."""
        out_NI = self._packed.new_empty(ids_N.shape[0], self.in_features)
        self._gather(
            ctypes.c_void_p(self._packed.data_ptr()),
            ctypes.c_void_p(ids_N.data_ptr()),
            ctypes.c_long(ids_N.shape[0]),
            ctypes.c_long(self.in_features),
            ctypes.c_void_p(out_NI.data_ptr()),
        )
        return out_NI

    def __call__(self, x_NI: torch.Tensor) -> torch.Tensor:
        rows = x_NI.shape[0]
        full = -(-rows // _ROWS) * _ROWS
        if rows != full or self._depth != self.in_features:
            padded = x_NI.new_zeros(full, self._depth)
            padded[:rows, : self.in_features] = x_NI
        else:
            padded = x_NI.contiguous()
        y_NO = x_NI.new_empty(rows, self.out_features)
        args = _ProductArgs(
            padded.data_ptr(),
            self._packed.data_ptr(),
            None if self._bias_O is None else self._bias_O.data_ptr(),
            y_NO.data_ptr(),
            rows,
            self.out_features,
            self._depth,
        )
        self._multiply(ctypes.byref(args))
        return y_NO


def make_matrix(weight_OI: torch.Tensor, bias_O: torch.Tensor | None, kernels: Kernels | None) -> Matrix:
    """`weight_OI` [out, in]; it may be freed afterwards where it gets packed."""
    if kernels is not None and NativeMatrix.supports(weight_OI):
        return NativeMatrix(weight_OI, bias_O, kernels)
    if PackedMatrix.supports(weight_OI):
        return PackedMatrix(weight_OI, bias_O)
    return PlainMatrix(weight_OI, bias_O)
