"""The row kernels against torch in double precision, and that a row does not depend on the others."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from services.models.cache import cache_root
from services.target.kernels.build import KernelsUnavailable, load_kernels
from services.target.model.rowwise import NativeRowOps, TorchRowOps, make_row_ops

DTYPES = [torch.float32, torch.bfloat16]
EPS = 1e-5


def native(dtype: torch.dtype) -> NativeRowOps:
    try:
        return NativeRowOps(load_kernels(cache_root()), dtype)
    except KernelsUnavailable as error:
        pytest.skip(str(error))


def close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    tolerance = 2**-8 if found.dtype == torch.bfloat16 else 3e-6  # half a unit in the last place of bf16, and a little
    torch.testing.assert_close(found.double(), wanted, atol=1e-5, rtol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
def test_norm(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    x, change, weight = torch.randn(7, 48).to(dtype), torch.randn(7, 48).to(dtype), torch.rand(48).to(dtype)
    rows = native(dtype)
    close(rows.norm(x, weight, EPS), F.rms_norm(x.double(), (48,), weight.double(), EPS))
    total, normed = rows.add_norm(x, change, weight, EPS)
    assert torch.equal(total, x + change)
    close(normed, F.rms_norm(total.double(), (48,), weight.double(), EPS))


@pytest.mark.parametrize("dtype", DTYPES)
def test_gate(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    gate_up = torch.randn(5, 64) * 4
    gate_up[0, :6] = torch.tensor([0.0, -0.0, 90.0, -90.0, 1e4, -1e4])
    gate_up = gate_up.to(dtype)
    gate, up = gate_up.double().chunk(2, -1)
    close(native(dtype).gate(gate_up), F.silu(gate) * up)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_is_the_same_in_any_company(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    x, change, weight = torch.randn(40, 64).to(dtype), torch.randn(40, 64).to(dtype), torch.rand(64).to(dtype)
    rows = native(dtype)
    total, normed = rows.add_norm(x, change, weight, EPS)
    gated = rows.gate(x)
    for row in range(40):
        own = slice(row, row + 1)
        one_total, one_normed = rows.add_norm(x[own], change[own], weight, EPS)
        assert torch.equal(one_total, total[own])
        assert torch.equal(one_normed, normed[own])
        assert torch.equal(rows.gate(x[own]), gated[own])
        assert torch.equal(rows.norm(total[own], weight, EPS), normed[own])


def test_torch_serves_where_the_kernels_do_not_fit() -> None:
    try:
        kernels = load_kernels(cache_root())
    except KernelsUnavailable as error:
        pytest.skip(str(error))
    assert isinstance(make_row_ops(kernels, torch.bfloat16, 64, 40), TorchRowOps)
    assert isinstance(make_row_ops(kernels, torch.float16, 64), TorchRowOps)
    assert isinstance(make_row_ops(None, torch.bfloat16, 64), TorchRowOps)
    assert isinstance(make_row_ops(kernels, torch.bfloat16, 64, 48), NativeRowOps)
