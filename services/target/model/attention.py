"""Attention over the paged KV cache: by the C kernel, or by plain torch operations."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import torch

from services.target.kernels.build import load_kernels
from services.target.kv.pool import KVPool
from services.target.model.spec import BLOCK, ModelSpec
from services.target.model.step import TILE, Pass

_SPLIT = 256  # keys that one partial result of the kernel covers
_MAX_HEAD_DIM = 256


@dataclass(frozen=True, slots=True)
class Rotary:
    """Rotary embedding tables [positions, rotary size / 2] fp32 and the optional norms of one layer."""

    cosine_PR: torch.Tensor
    sine_PR: torch.Tensor
    q_norm_D: torch.Tensor | None
    k_norm_D: torch.Tensor | None
    eps: float


class Attention(Protocol):
    def rotate(self, layer: int, step: Pass, qkv_NC: torch.Tensor, rotary: Rotary, pool: KVPool) -> torch.Tensor:
        """Norms and rotates queries and keys, and writes keys and values to the pool.

        Returns queries [rows, heads, head size].
        """

    def store(self, layer: int, step: Pass, keys_NKD: torch.Tensor, values_NKD: torch.Tensor, pool: KVPool) -> None: ...

    def attend(
        self, layer: int, step: Pass, query_NHD: torch.Tensor, pool: KVPool, scale: float, softcap: float
    ) -> torch.Tensor:
        """Returns [rows, heads * head size]."""


class TorchAttention:
    """Plain operations, one sequence at a time. Works on any device; its rows are not bitwise invariant."""

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec

    def rotate(self, layer: int, step: Pass, qkv_NC: torch.Tensor, rotary: Rotary, pool: KVPool) -> torch.Tensor:
        spec = self._spec
        qkv_NHD = qkv_NC.view(qkv_NC.shape[0], spec.heads + 2 * spec.kv_heads, spec.head_dim)
        q_NHD, k_NKD, v_NKD = qkv_NHD.split((spec.heads, spec.kv_heads, spec.kv_heads), dim=1)
        q_NHD = self._turn(q_NHD, step, rotary, rotary.q_norm_D)
        self.store(layer, step, self._turn(k_NKD, step, rotary, rotary.k_norm_D), v_NKD, pool)
        return q_NHD

    @staticmethod
    def _turn(x_NHD: torch.Tensor, step: Pass, rotary: Rotary, norm_D: torch.Tensor | None) -> torch.Tensor:
        y = x_NHD.float()
        if norm_D is not None:
            y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + rotary.eps) * norm_D
        positions = step.positions_N.long()
        cosine, sine = rotary.cosine_PR[positions, None], rotary.sine_PR[positions, None]
        half = cosine.shape[-1]
        low, high, rest = y[..., :half], y[..., half : 2 * half], y[..., 2 * half :]
        return torch.cat((low * cosine - high * sine, high * cosine + low * sine, rest), -1).to(x_NHD.dtype)

    def store(self, layer: int, step: Pass, keys_NKD: torch.Tensor, values_NKD: torch.Tensor, pool: KVPool) -> None:
        slots = step.slots_N.long()
        blocks, offsets = slots // BLOCK, slots % BLOCK
        pool.keys_LBKDP[layer][blocks, :, :, offsets] = keys_NKD
        pool.values_LBKPD[layer][blocks, :, offsets] = values_NKD

    def attend(
        self, layer: int, step: Pass, query_NHD: torch.Tensor, pool: KVPool, scale: float, softcap: float
    ) -> torch.Tensor:
        spec = self._spec
        group, window = spec.heads // spec.kv_heads, spec.windows[layer]
        outputs = []
        for segment, (start, end) in enumerate(pairwise(step.segment_starts)):
            rows = step.positions_N[start:end].long()
            blocks = step.tables_SM[segment, : int(rows[-1]) // BLOCK + 1].long()
            keys_KDJ = pool.keys_LBKDP[layer][blocks].permute(1, 2, 0, 3).flatten(2)
            values_KJD = pool.values_LBKPD[layer][blocks].permute(1, 0, 2, 3).flatten(1, 2)
            q_KMD = query_NHD[start:end].unflatten(1, (spec.kv_heads, group)).permute(1, 0, 2, 3).flatten(1, 2)
            scores_KMJ = torch.matmul(q_KMD, keys_KDJ).float() * scale
            if softcap:
                scores_KMJ = softcap * torch.tanh(scores_KMJ / softcap)
            keys_at = torch.arange(keys_KDJ.shape[-1], device=rows.device)
            visible = keys_at <= rows[:, None]
            if window:
                visible &= keys_at > rows[:, None] - window
            scores_KMJ.masked_fill_(~visible.repeat_interleave(group, 0), float("-inf"))
            mixed_KMD = torch.matmul(scores_KMJ.softmax(-1).to(values_KJD.dtype), values_KJD)
            outputs.append(mixed_KMD.unflatten(1, (end - start, group)).permute(1, 0, 2, 3).flatten(1))
        return torch.cat(outputs)


class _AttendArgs(ctypes.Structure):
    _fields_ = [
        ("query", ctypes.c_void_p),
        ("query_stride", ctypes.c_long),
        ("keys", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("tables", ctypes.c_void_p),
        ("positions", ctypes.c_void_p),
        ("tiles", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("partial", ctypes.c_void_p),
        *(
            (name, ctypes.c_int32)
            for name in ("tile_count", "heads", "kv_heads", "head_dim", "table_width", "max_splits", "window")
        ),
        ("scale", ctypes.c_float),
        ("softcap", ctypes.c_float),
    ]


class _RotateArgs(ctypes.Structure):
    _fields_ = [
        *(
            (name, ctypes.c_void_p)
            for name in ("qkv", "q_norm", "k_norm", "cosine", "sine", "positions", "slots", "query", "keys", "values")
        ),
        *((name, ctypes.c_int32) for name in ("rows", "heads", "kv_heads", "head_dim", "rotary")),
        ("eps", ctypes.c_float),
    ]


class NativeAttention:
    """The C kernel: rows are bitwise the same in any company, by construction."""

    @staticmethod
    def supports(spec: ModelSpec, dtype: torch.dtype, device: torch.device) -> bool:
        return (
            device.type == "cpu"
            and dtype in (torch.bfloat16, torch.float32)
            and spec.head_dim % 16 == 0
            and spec.head_dim <= _MAX_HEAD_DIM
            and spec.heads // spec.kv_heads <= TILE
        )

    def __init__(self, spec: ModelSpec, dtype: torch.dtype, cache_dir: Path) -> None:
        """Raises KernelsUnavailable where there is no compiler."""
        kernels = load_kernels(cache_dir)
        self._attend = kernels.get("attend", dtype)
        self._rotate = kernels.get("rotate", dtype)
        self._spec = spec
        self._fallback = TorchAttention(spec)
        self._partial = torch.empty(0)

    def rotate(self, layer: int, step: Pass, qkv_NC: torch.Tensor, rotary: Rotary, pool: KVPool) -> torch.Tensor:
        spec, rows = self._spec, qkv_NC.shape[0]
        query_NHD = torch.empty(rows, spec.heads, spec.head_dim, dtype=qkv_NC.dtype)
        args = _RotateArgs(
            qkv_NC.data_ptr(),
            None if rotary.q_norm_D is None else rotary.q_norm_D.data_ptr(),
            None if rotary.k_norm_D is None else rotary.k_norm_D.data_ptr(),
            rotary.cosine_PR.data_ptr(),
            rotary.sine_PR.data_ptr(),
            step.positions_N.data_ptr(),
            step.slots_N.data_ptr(),
            query_NHD.data_ptr(),
            pool.keys_LBKDP[layer].data_ptr(),
            pool.values_LBKPD[layer].data_ptr(),
            rows,
            spec.heads,
            spec.kv_heads,
            spec.head_dim,
            2 * rotary.cosine_PR.shape[1],
            rotary.eps,
        )
        self._rotate(ctypes.byref(args))
        return query_NHD

    def store(self, layer: int, step: Pass, keys_NKD: torch.Tensor, values_NKD: torch.Tensor, pool: KVPool) -> None:
        self._fallback.store(layer, step, keys_NKD, values_NKD, pool)

    def attend(
        self, layer: int, step: Pass, query_NHD: torch.Tensor, pool: KVPool, scale: float, softcap: float
    ) -> torch.Tensor:
        spec, rows = self._spec, query_NHD.shape[0]
        splits = step.last_position // _SPLIT + 1
        needed = rows * spec.heads * splits * (spec.head_dim + 2)
        if self._partial.numel() < needed:
            self._partial = torch.empty(needed)
        out_NC = torch.empty(rows, spec.heads * spec.head_dim, dtype=query_NHD.dtype)
        args = _AttendArgs(
            query_NHD.data_ptr(),
            query_NHD.stride(0),
            pool.keys_LBKDP[layer].data_ptr(),
            pool.values_LBKPD[layer].data_ptr(),
            step.tables_SM.data_ptr(),
            step.positions_N.data_ptr(),
            step.tiles_T3.data_ptr(),
            out_NC.data_ptr(),
            self._partial.data_ptr(),
            step.tiles_T3.shape[0],
            spec.heads,
            spec.kv_heads,
            spec.head_dim,
            step.tables_SM.shape[1],
            splits,
            spec.windows[layer],
            scale,
            softcap,
        )
        self._attend(ctypes.byref(args))
        return out_NC
