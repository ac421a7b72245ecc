"""Attention alone: random pools, permuted block tables, and rows laid out in several ways."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from services.target.kernels.build import KernelsUnavailable
from services.target.kv.pool import KVPool
from services.target.model.attention import Attention, NativeAttention
from services.target.model.layout import lay_out
from services.target.model.spec import BLOCK, ModelSpec
from services.target.model.step import Pass, Segment

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Shape:
    head_dim: int
    group: int = 1
    kv_heads: int = 2
    window: int = 0
    softcap: float = 0.0

    @property
    def spec(self) -> ModelSpec:
        heads = self.kv_heads * self.group
        return ModelSpec(64, heads * self.head_dim, 1, heads, self.kv_heads, self.head_dim, 2048, (self.window,), ())


def native(spec: ModelSpec, dtype: torch.dtype, cache_dir: Path) -> NativeAttention:
    assert NativeAttention.supports(spec, dtype, CPU)
    try:
        return NativeAttention(spec, dtype, cache_dir)
    except KernelsUnavailable as error:
        pytest.skip(str(error))


class Text:
    """One sequence whose keys and values are in the pool, in blocks of any order."""

    def __init__(self, length: int, blocks: list[int], shape: Shape, dtype: torch.dtype, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        spec = shape.spec
        self.length, self.blocks = length, blocks
        self.query_NHD = torch.randn(length, spec.heads, spec.head_dim, generator=generator).to(dtype)
        self.keys_NKD = torch.randn(length, spec.kv_heads, spec.head_dim, generator=generator).to(dtype)
        self.values_NKD = torch.randn(length, spec.kv_heads, spec.head_dim, generator=generator).to(dtype)

    def rows(self, start: int, end: int) -> Segment:
        return Segment([0] * (end - start), start, self.blocks, ())


def make_texts(lengths: list[int], shape: Shape, dtype: torch.dtype, attention: Attention) -> tuple[KVPool, list[Text]]:
    """Fills a pool; blocks that nobody holds, and the ends of last blocks, are noise."""
    counts = [-(-length // BLOCK) for length in lengths]
    free = list(range(sum(counts) + 3))
    random.Random(1).shuffle(free)
    pool = KVPool(shape.spec, len(free), dtype, CPU)
    pool.keys_LBKDP.normal_(generator=torch.Generator().manual_seed(2))
    pool.values_LBKPD.normal_(generator=torch.Generator().manual_seed(3))
    texts = []
    for number, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        text = Text(length, [free.pop() for _ in range(count)], shape, dtype, 10 + number)
        step = lay_out([text.rows(0, length)], shape.group, CPU)
        attention.store(0, step, text.keys_NKD, text.values_NKD, pool)
        texts.append(text)
    return pool, texts


def attend(attention: Attention, pool: KVPool, shape: Shape, parts: list[tuple[Text, int, int]]) -> list[torch.Tensor]:
    """The rows start .. end of each text in one pass."""
    step: Pass = lay_out([text.rows(start, end) for text, start, end in parts], shape.group, CPU)
    query_NHD = torch.cat([text.query_NHD[start:end] for text, start, end in parts])
    out_NC = attention.attend(0, step, query_NHD, pool, shape.head_dim**-0.5, shape.softcap)
    return list(out_NC.split([end - start for _, start, end in parts]))


def reference(text: Text, shape: Shape) -> torch.Tensor:
    """Plain causal attention in fp64 over the whole text: [rows, heads * head size]."""
    q = text.query_NHD.double().transpose(0, 1)
    k = text.keys_NKD.double().repeat_interleave(shape.group, 1).transpose(0, 1)
    v = text.values_NKD.double().repeat_interleave(shape.group, 1).transpose(0, 1)
    scores = q @ k.transpose(1, 2) * shape.head_dim**-0.5
    if shape.softcap:
        scores = shape.softcap * torch.tanh(scores / shape.softcap)
    at = torch.arange(text.length)
    visible = at[None] <= at[:, None]
    if shape.window:
        visible &= at[None] > at[:, None] - shape.window
    out = scores.masked_fill(~visible, float("-inf")).softmax(-1) @ v
    return out.transpose(0, 1).flatten(1)
