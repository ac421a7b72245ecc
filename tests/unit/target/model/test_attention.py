from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from services.target.kv.pool import KVPool
from services.target.model.attention import Attention, NativeAttention, Rotary, TorchAttention
from services.target.model.layout import lay_out
from services.target.model.spec import BLOCK
from services.target.model.step import Segment
from tests.unit.target.model.passes import CPU, Shape, attend, make_texts, native, reference

SHAPES = [
    *(Shape(head_dim) for head_dim in (16, 32, 48, 64, 80, 96, 128, 160, 256)),
    *(Shape(32, group) for group in (2, 3, 4, 5, 6, 7, 8)),
    Shape(64, 3),
    Shape(128, 4, kv_heads=1),
    *(Shape(32, 2, window=window) for window in (1, 15, 16, 17, 100, 256, 300)),
    Shape(64, 1, softcap=2.0),
    Shape(256, 2, window=24, softcap=30.0),
]
NAMES = [f"d{s.head_dim}g{s.group}w{s.window}c{s.softcap:g}" for s in SHAPES]
DTYPES = [torch.float32, torch.bfloat16]
LENGTHS = [600, 257, 33, 1]  # over two splits of 256 keys, just over one, an unfinished block, a start


@pytest.fixture(scope="session")
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=NAMES)
def test_both_attentions_are_causal_softmax_attention(shape: Shape, dtype: torch.dtype, kernel_cache: Path) -> None:
    attention = native(shape.spec, dtype, kernel_cache)
    pool, texts = make_texts(LENGTHS, shape, dtype, attention)
    parts = [(text, 0, text.length) for text in texts]
    fast, plain = attend(attention, pool, shape, parts), attend(TorchAttention(shape.spec), pool, shape, parts)
    # bf16 keeps 8 bits; plain operations also round scores and probabilities to them.
    fine, coarse = (1e-5, 1e-5) if dtype == torch.float32 else (0.02, 0.08)
    for text, by_kernel, by_torch in zip(texts, fast, plain, strict=True):
        exact = reference(text, shape)
        torch.testing.assert_close(by_kernel.double(), exact, rtol=fine, atol=fine)
        torch.testing.assert_close(by_torch.double(), exact, rtol=coarse, atol=coarse)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=NAMES)
def test_rows_of_the_kernel_have_the_same_bits_in_any_company(
    shape: Shape, dtype: torch.dtype, kernel_cache: Path
) -> None:
    attention = native(shape.spec, dtype, kernel_cache)
    pool, texts = make_texts(LENGTHS, shape, dtype, attention)
    rng = random.Random(4)
    whole = attend(attention, pool, shape, [(text, 0, text.length) for text in texts])
    for text, rows in zip(texts, whole, strict=True):
        ends = {0, text.length - 1, *(rng.randrange(text.length) for _ in range(12))}
        ends |= {at for at in (15, 16, 254, 255, 256, 257, 511, 512) if at < text.length}
        for at in sorted(ends):
            (alone,) = attend(attention, pool, shape, [(text, at, at + 1)])
            assert torch.equal(alone, rows[at : at + 1]), f"row {at} alone"
            end = min(text.length, at + rng.choice((2, 3, 8, 9, 17)))
            companions = [(other, *_some_rows(other.length, rng)) for other in rng.sample(texts, 2)]
            (verified, *_) = attend(attention, pool, shape, [(text, at, end), *companions])
            assert torch.equal(verified, rows[at:end]), f"rows {at} to {end} in a batch"
    for chunk in (7, 33, 250):
        text = texts[0]
        pieces = [
            attend(attention, pool, shape, [(text, at, min(at + chunk, text.length))])[0]
            for at in range(0, text.length, chunk)
        ]
        assert torch.equal(torch.cat(pieces), whole[0]), f"chunks of {chunk}"


def _some_rows(length: int, rng: random.Random) -> tuple[int, int]:
    start = rng.randrange(length)
    return start, rng.randint(start + 1, min(length, start + 20))


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_do_not_depend_on_the_number_of_threads(dtype: torch.dtype, kernel_cache: Path) -> None:
    shape = Shape(64, 3)
    attention = native(shape.spec, dtype, kernel_cache)
    pool, texts = make_texts(LENGTHS, shape, dtype, attention)
    parts = [(text, 0, text.length) for text in texts]
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = attend(attention, pool, shape, parts)
        torch.set_num_threads(2)
        two = attend(attention, pool, shape, parts)
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_what_lies_past_a_row_does_not_touch_it(kernel_cache: Path) -> None:
    """Later positions, and blocks of others, may change without a trace."""
    shape = Shape(32, 2)
    attention = native(shape.spec, torch.float32, kernel_cache)
    pool, (text, other) = make_texts([300, 50], shape, torch.float32, attention)
    (before,) = attend(attention, pool, shape, [(text, 100, 101)])
    for at in (101, 111, 112, 255, 299):
        pool.keys_LBKDP[0, text.blocks[at // BLOCK], :, :, at % BLOCK] += 100.0
        pool.values_LBKPD[0, text.blocks[at // BLOCK], :, at % BLOCK] -= 100.0
    pool.keys_LBKDP[0, other.blocks] *= -3.0
    assert torch.equal(attend(attention, pool, shape, [(text, 100, 101)])[0], before)
    pool.keys_LBKDP[0, text.blocks[6], :, :, 4] += 1.0  # position 100, its own
    assert not torch.equal(attend(attention, pool, shape, [(text, 100, 101)])[0], before)


@pytest.mark.parametrize("dtype", DTYPES)
def test_large_scores_do_not_overflow(dtype: torch.dtype, kernel_cache: Path) -> None:
    shape = Shape(16)
    attention = native(shape.spec, dtype, kernel_cache)
    pool, (text,) = make_texts([300], shape, dtype, attention)
    text.query_NHD.mul_(1000.0)
    (rows,) = attend(attention, pool, shape, [(text, 0, 300)])
    torch.testing.assert_close(rows.double(), reference(text, shape), rtol=0.02, atol=0.02)


@pytest.mark.parametrize(
    ("shape", "supported"),
    [(Shape(64, 8), True), (Shape(64, 9), False), (Shape(24), False), (Shape(256), True), (Shape(272), False)],
)
def test_what_the_kernel_takes(shape: Shape, supported: bool) -> None:
    assert NativeAttention.supports(shape.spec, torch.bfloat16, CPU) == supported
    assert not NativeAttention.supports(shape.spec, torch.float16, CPU)


def _rotary(head_dim: int, size: int, norms: bool, eps: float) -> Rotary:
    generator = torch.Generator().manual_seed(size)
    angles = torch.arange(400)[:, None] * (1.0 / 100.0 ** (torch.arange(0, size, 2) / size))
    q_norm, k_norm = (torch.rand(head_dim, generator=generator) + 0.5 for _ in "qk")
    return Rotary(
        (angles.cos() * 1.1).contiguous(),
        (angles.sin() * 1.1).contiguous(),
        q_norm if norms else None,
        k_norm if norms else None,
        eps,
    )


def _rotate_reference(x: torch.Tensor, position: int, rotary: Rotary, norm: torch.Tensor | None) -> torch.Tensor:
    """One head in fp64: the pair (i, i + half) turns by its angle."""
    x = x.double()
    if norm is not None:
        x = x / (x.square().mean() + rotary.eps).sqrt() * norm.double()
    half = rotary.cosine_PR.shape[1]
    cosine, sine = rotary.cosine_PR[position].double(), rotary.sine_PR[position].double()
    out = x.clone()
    out[:half] = x[:half] * cosine - x[half : 2 * half] * sine
    out[half : 2 * half] = x[half : 2 * half] * cosine + x[:half] * sine
    return out


@pytest.mark.parametrize("kind", ["kernel", "torch"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norms", [False, True])
@pytest.mark.parametrize(("head_dim", "size"), [(16, 16), (64, 64), (64, 32), (128, 128), (256, 64)])
def test_rotation_norms_and_cache_write(
    head_dim: int, size: int, norms: bool, dtype: torch.dtype, kind: str, kernel_cache: Path
) -> None:
    shape = Shape(head_dim, 3)
    spec, rotary = shape.spec, _rotary(head_dim, size, norms, 1e-5)
    attention: Attention = native(spec, dtype, kernel_cache) if kind == "kernel" else TorchAttention(spec)
    pool = KVPool(spec, 40, dtype, CPU)
    blocks = random.Random(0).sample(range(40), 25)
    segments = [Segment([0] * 5, 30, blocks[:5], ()), Segment([0] * 2, 318, blocks[5:], ())]
    qkv = torch.randn(7, (spec.heads + 2 * spec.kv_heads) * head_dim, generator=torch.Generator().manual_seed(1))
    qkv = qkv.to(dtype)
    query = attention.rotate(0, lay_out(segments, shape.group, CPU), qkv, rotary, pool)
    tolerance = 2e-6 if dtype == torch.float32 else 0.01
    heads = qkv.view(7, -1, head_dim)
    for row, (segment, position) in enumerate(
        (s, s.first_position + offset) for s in segments for offset in range(len(s.tokens))
    ):
        block, offset = segment.blocks[position // BLOCK], position % BLOCK
        for head in range(spec.heads):
            expected = _rotate_reference(heads[row, head], position, rotary, rotary.q_norm_D)
            torch.testing.assert_close(query[row, head].double(), expected, rtol=tolerance, atol=tolerance)
        for head in range(spec.kv_heads):
            expected = _rotate_reference(heads[row, spec.heads + head], position, rotary, rotary.k_norm_D)
            stored = pool.keys_LBKDP[0, block, head, :, offset]
            torch.testing.assert_close(stored.double(), expected, rtol=tolerance, atol=tolerance)
            value = heads[row, spec.heads + spec.kv_heads + head]
            assert torch.equal(pool.values_LBKPD[0, block, head, offset], value)
    assert int((pool.values_LBKPD != 0).any(-1).sum()) == 7 * spec.kv_heads, "nothing else was written"


@pytest.mark.parametrize("dtype", DTYPES)
def test_rotated_rows_have_the_same_bits_in_any_company(dtype: torch.dtype, kernel_cache: Path) -> None:
    shape = Shape(64, 3)
    spec, rotary = shape.spec, _rotary(64, 64, True, 1e-6)
    attention = native(spec, dtype, kernel_cache)
    qkv = torch.randn(20, (spec.heads + 2 * spec.kv_heads) * 64, generator=torch.Generator().manual_seed(1)).to(dtype)
    together, alone = KVPool(spec, 2, dtype, CPU), KVPool(spec, 2, dtype, CPU)
    step = lay_out([Segment([0] * 20, 3, [1, 0], ())], shape.group, CPU)
    whole = attention.rotate(0, step, qkv, rotary, together)
    for row in range(20):
        step = lay_out([Segment([0], 3 + row, [1, 0], ())], shape.group, CPU)
        one = attention.rotate(0, step, qkv[row : row + 1].contiguous(), rotary, alone)
        assert torch.equal(one, whole[row : row + 1])
    assert torch.equal(together.keys_LBKDP, alone.keys_LBKDP)
    assert torch.equal(together.values_LBKPD, alone.values_LBKPD)
