"""Settings of the router."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from services.requests.task import TaskClass
from services.rpc.channels import ChannelConfig

DrafterKind = Literal["mtp", "dfly", "lookup"]


class BanditConfig(BaseModel):
    """How far to trust what was measured, and how much to try out."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    explored: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="Bounds the regret: no larger share of a class's requests goes to a kind that looks slower.",
    )
    savings: float = Field(default=3.0, ge=1, le=1000, description="Explorations that a quiet class may save up.")
    trusted: float = Field(
        default=20.0, gt=0, le=1e6, description="Samples after which measurements alone count; before, the prior too."
    )
    rounds: float = Field(
        default=16.0, ge=1, le=1e6, description="Rounds whose emitted tokens tell as much as one independent sample."
    )
    width: float = Field(default=2.0, ge=0, le=100, description="Of the confidence bound, in standard errors.")
    priors: dict[TaskClass, dict[DrafterKind, float]] = Field(
        default={
            "chat": {"mtp": 1.6, "dfly": 1.5, "lookup": 1.05},
            "code": {"mtp": 1.9, "dfly": 1.9, "lookup": 1.2},
            "maths": {"mtp": 1.7, "dfly": 1.7, "lookup": 1.1},
        },
        description="Tokens a round that a kind is taken to give a class before anything is measured; 1 where unnamed.",
    )
    prior_costs: dict[DrafterKind, float] = Field(
        default={"mtp": 1.2, "dfly": 1.4, "lookup": 1.05},
        description="Plain steps that a round with a kind is taken to cost before anything is measured; 1 where "
        "unnamed.",
    )

    @field_validator("priors")
    @classmethod
    def _tokens(cls, priors: dict[TaskClass, dict[DrafterKind, float]]) -> dict[TaskClass, dict[DrafterKind, float]]:
        for kinds in priors.values():
            _check_range("priors", kinds)
        return priors

    @field_validator("prior_costs")
    @classmethod
    def _costs(cls, costs: dict[DrafterKind, float]) -> dict[DrafterKind, float]:
        _check_range("prior_costs", costs)
        return costs


def _check_range(field: str, values: Mapping[DrafterKind, float]) -> None:
    for kind, value in values.items():
        if not 0.1 <= value <= 100:
            raise ValueError(f"{field}: {value} of {kind} is out of range; it must be at least 0.1 and at most 100")


class RouterConfig(BaseModel):
    """How drafters are chosen and their places reserved."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    preference: tuple[DrafterKind, ...] = Field(
        default=("mtp", "dfly", "lookup"),
        min_length=1,
        description="Drafter kinds for `auto` and for replacements, best first.",
    )
    bandit: BanditConfig = Field(
        default=BanditConfig(), description="How `auto` chooses among them, from what the fleet has measured."
    )
    drafters_per_target: int = Field(
        default=4, ge=1, le=64, description="Most replicas of one drafter kind that a target replica keeps streams to."
    )
    reserve_timeout_s: float = Field(default=0.25, gt=0, le=10, description="Deadline of one reservation, in seconds.")
    reserve_attempts: int = Field(
        default=3, ge=1, le=16, description="Replicas tried before the target drafts for itself."
    )
    report_period_s: float = Field(default=0.25, gt=0, le=10, description="Time between two load reports, in seconds.")
    lease_s: float = Field(default=2.0, gt=0, le=60, description="Silence after which this replica leaves the fleet.")
    channels: ChannelConfig = Field(
        default_factory=lambda: ChannelConfig(connect_timeout_s=0.25), description="How drafters are dialled."
    )

    @field_validator("preference")
    @classmethod
    def _each_once(cls, kinds: tuple[DrafterKind, ...]) -> tuple[DrafterKind, ...]:
        if len(set(kinds)) != len(kinds):
            raise ValueError(f"{', '.join(kinds)} names a kind twice; every kind may be named once")
        return kinds
