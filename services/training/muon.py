"""Muon for matrices: momentum, made orthogonal by a few Newton-Schulz steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

# A quintic whose five rounds bring singular values near 1, fastest for small ones.
_A, _B, _C = 3.4445, -4.7750, 2.0315
_ROUNDS = 5


class Muon(torch.optim.Optimizer):
    """Steps matrices along the orthogonal factor of their momentum, with decoupled weight decay."""

    def __init__(
        self, params: Iterable[torch.nn.Parameter], lr: float, momentum: float = 0.95, weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._step_one(parameter, parameter.grad, group)

    def _step_one(self, parameter: torch.nn.Parameter, gradient: torch.Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["momentum"] = torch.zeros_like(parameter)
        momentum = state["momentum"].mul_(group["momentum"]).add_(gradient, alpha=1 - group["momentum"])
        looking_ahead = gradient.lerp(momentum, group["momentum"])
        rows, columns = parameter.shape
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.add_(orthogonal(looking_ahead), alpha=-group["lr"] * max(1.0, rows / columns) ** 0.5)


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """About the nearest matrix whose singular values are all 1."""
    x = matrix.bfloat16()
    is_tall = x.shape[0] > x.shape[1]
    x = x.T if is_tall else x
    x = x / (x.norm() + 1e-7)
    for _ in range(_ROUNDS):
        square = x @ x.T
        x = _A * x + (_B * square + _C * square @ square) @ x
    found: torch.Tensor = (x.T if is_tall else x).to(matrix.dtype)
    return found
