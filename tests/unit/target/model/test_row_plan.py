from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from services.target.model.row_plan import RowPlan, find_row_plan

CPU = torch.device("cpu")


class Product:
    """An exact product of integers, spoiled by how many rows it is given."""

    in_features, out_features = 12, 5

    def __init__(self, spoil: Callable[[torch.Tensor], None] = lambda y: None) -> None:
        self._weight = torch.randint(-3, 4, (5, 12), generator=torch.Generator().manual_seed(0)).float()
        self._spoil = spoil
        self.counts: set[int] = set()

    def __call__(self, x_NI: torch.Tensor) -> torch.Tensor:
        self.counts.add(x_NI.shape[0])
        y = x_NI @ self._weight.T.to(x_NI.dtype)
        self._spoil(y)
        return y


def find(max_rows: int, *products: Product) -> RowPlan | None:
    return find_row_plan(list(products), max_rows, torch.float64, CPU, torch.Generator().manual_seed(1))


def later_rows(y: torch.Tensor) -> None:
    y[8:] += 1e-3


def count_above_8(y: torch.Tensor) -> None:
    if len(y) > 8:
        y += len(y) * 1e-3


def count_above_100(y: torch.Tensor) -> None:
    if len(y) > 100:
        y += len(y) * 1e-3


def fewer_than_3(y: torch.Tensor) -> None:
    if len(y) < 3:
        y += 1e-3


class Drift:
    """Another result at every call."""

    calls = 0

    def __call__(self, y: torch.Tensor) -> None:
        self.calls += 1
        y += self.calls * 1e-3


class Rounded(Product):
    """Coarse values, so that sums are exact and only the spoiling shows."""

    def __call__(self, x_NI: torch.Tensor) -> torch.Tensor:
        return super().__call__((x_NI * 16).round())


@pytest.mark.parametrize(
    ("spoil", "plan"),
    [
        (lambda y: None, RowPlan(1, 256)),
        (later_rows, RowPlan(1, 8)),
        (count_above_8, RowPlan(16, 16)),  # always the same count
        (count_above_100, RowPlan(1, 64)),
        (fewer_than_3, RowPlan(4, 256)),
        (Drift(), None),
    ],
)
def test_the_cheapest_plan_that_holds(spoil: Callable[[torch.Tensor], None], plan: RowPlan | None) -> None:
    assert find(300, Rounded(spoil)) == plan


def test_every_product_must_hold() -> None:
    assert find(300, Rounded(), Rounded(later_rows), Rounded()) == RowPlan(1, 8)


def test_no_more_rows_are_tried_than_a_step_has() -> None:
    product = Rounded()
    assert find(40, product) == RowPlan(1, 32)
    assert max(product.counts) <= 40


@pytest.mark.parametrize("plan", [RowPlan(), RowPlan(1, 8), RowPlan(4, 8), RowPlan(16, 16), RowPlan(4, 48)])
@pytest.mark.parametrize("rows", [1, 3, 4, 7, 8, 9, 16, 17, 31, 33, 50])
def test_a_plan_changes_no_result_and_keeps_its_bounds(plan: RowPlan, rows: int) -> None:
    product = Product()
    x = torch.randint(-5, 6, (rows, 12), generator=torch.Generator().manual_seed(rows)).double()
    assert torch.equal(plan.multiply(x, product), x @ product._weight.T.double())
    if plan.tile:
        assert product.counts <= set(range(plan.pad, plan.tile + 1))
    else:
        assert product.counts == {rows}
