"""What the engine asks of a target model."""

from __future__ import annotations

from typing import Protocol

from services.target.kv.pool import KVPool
from services.target.model.matrix import Matrix
from services.target.model.row_plan import RowPlan
from services.target.model.spec import ModelSpec
from services.target.model.step import Pass, PassResult


class Forward(Protocol):
    spec: ModelSpec
    plan: RowPlan

    def matrices(self) -> list[Matrix]: ...

    def forward(self, step: Pass, pool: KVPool) -> PassResult: ...
