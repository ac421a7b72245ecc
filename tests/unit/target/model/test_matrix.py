from __future__ import annotations

from pathlib import Path

import pytest
import torch

from services.target.kernels.build import KernelsUnavailable, load_kernels
from services.target.model.matrix import Matrix, NativeMatrix, PackedMatrix, PlainMatrix, make_matrix

SHAPES = [(1, 1), (5, 33), (32, 32), (33, 64), (100, 31), (96, 576), (576, 1536)]  # out, in
KINDS = [
    (PlainMatrix, torch.float32),
    (PlainMatrix, torch.bfloat16),
    (PackedMatrix, torch.bfloat16),
    (NativeMatrix, torch.float32),
    (NativeMatrix, torch.bfloat16),
]
ROWS = [1, 2, 7, 15, 16, 17, 31, 33, 64]


def make(kind: type[Matrix], weight: torch.Tensor, bias: torch.Tensor | None, cache: Path) -> Matrix:
    if kind is PlainMatrix:
        return PlainMatrix(weight, bias)
    if kind is PackedMatrix:
        if not PackedMatrix.supports(weight):
            pytest.skip("oneDNN does not pack this here")
        return PackedMatrix(weight, bias)
    try:
        return NativeMatrix(weight, bias, load_kernels(cache))
    except KernelsUnavailable as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("kind", "dtype"), KINDS)
def test_products(
    kind: type[Matrix],
    shape: tuple[int, int],
    dtype: torch.dtype,
    has_bias: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    generator = torch.Generator().manual_seed(3)
    weight = torch.randn(shape, generator=generator).to(dtype)
    bias = torch.randn(shape[0], generator=generator).to(dtype) if has_bias else None
    matrix = make(kind, weight, bias, tmp_path_factory.getbasetemp())
    assert (matrix.out_features, matrix.in_features) == shape
    x = torch.randn(max(ROWS), shape[1], generator=generator).to(dtype)
    exact = x.double() @ weight.double().T + (0.0 if bias is None else bias.double())
    rtol, atol = (1e-5, 1e-5 * shape[1] ** 0.5) if dtype == torch.float32 else (0.01, 0.01 * shape[1] ** 0.5)
    whole = matrix(x)
    assert whole.dtype == dtype
    torch.testing.assert_close(whole.double(), exact, rtol=rtol, atol=atol)
    for rows in ROWS:
        part = matrix(x[:rows])
        assert part.shape == (rows, shape[0])
        torch.testing.assert_close(part.double(), exact[:rows], rtol=rtol, atol=atol)
        if kind is NativeMatrix:
            assert torch.equal(part, whole[:rows]), f"{rows} rows"
            assert torch.equal(matrix(x[rows - 1 : rows]), whole[rows - 1 : rows]), f"row {rows} alone"
            assert torch.equal(matrix(x[3 : 3 + rows]), whole[3 : 3 + rows]), f"{rows} rows, elsewhere"


def test_the_weight_may_be_a_view_and_may_go(tmp_path_factory: pytest.TempPathFactory) -> None:
    generator = torch.Generator().manual_seed(4)
    weight = torch.randn(40, 33, generator=generator)
    x = torch.randn(5, 40, generator=generator)
    expected = x @ weight
    matrix = make(NativeMatrix, weight.T, None, tmp_path_factory.getbasetemp())
    weight.zero_()
    torch.testing.assert_close(matrix(x), expected, rtol=1e-5, atol=1e-4)


def test_without_kernels_there_is_always_a_way() -> None:
    weight = torch.ones(3, 4)
    assert isinstance(make_matrix(weight, None, None), PlainMatrix)
    assert not isinstance(make_matrix(weight.bfloat16(), None, None), NativeMatrix)
