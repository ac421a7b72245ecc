from __future__ import annotations

import pytest
import torch

from services.training.muon import Muon, orthogonal


@pytest.mark.parametrize("shape", [(12, 12), (8, 40), (40, 8)])
def test_singular_values_come_near_one(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    values = torch.linalg.svdvals(orthogonal(torch.randn(shape)).float())
    assert values.shape[0] == min(shape)
    assert bool(((values > 0.5) & (values < 1.4)).all())


def test_a_step_goes_against_the_gradient_by_the_rate_and_forgets_by_the_decay() -> None:
    torch.manual_seed(0)
    start = torch.randn(6, 6)
    matrix = torch.nn.Parameter(start.clone())
    gradient = torch.randn(6, 6)
    matrix.grad = gradient.clone()
    Muon([matrix], lr=0.1, weight_decay=0.5).step()
    moved = matrix.detach() - start * (1 - 0.1 * 0.5)
    torch.testing.assert_close(moved, -0.1 * orthogonal(gradient), atol=5e-3, rtol=0.2)


def test_it_reaches_the_minimum_of_a_quadratic() -> None:
    torch.manual_seed(0)
    goal = torch.randn(8, 16)
    matrix = torch.nn.Parameter(torch.zeros(8, 16))
    muon = Muon([matrix], lr=0.3)
    for step in range(200):
        muon.param_groups[0]["lr"] = 0.3 * (1 - step / 200)
        muon.zero_grad()
        (matrix - goal).square().sum().backward()
        muon.step()
    assert float((matrix - goal).norm() / goal.norm()) < 0.05
