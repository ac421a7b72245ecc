"""Settings of the router."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from services.requests.task import Task, TaskClass
from services.rpc.channels import ChannelConfig

DrafterKind = Literal["mtp", "dfly", "lookup"]


class RouterConfig(BaseModel):
    """How drafters are chosen and their places reserved."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    preference: tuple[DrafterKind, ...] = Field(
        default=("mtp", "dfly", "lookup"),
        min_length=1,
        description="Drafter kinds for `auto` and for replacements, best first.",
    )
    class_preference: dict[TaskClass, tuple[DrafterKind, ...]] = Field(
        default={"code": ("dfly", "mtp", "lookup"), "maths": ("dfly", "mtp", "lookup")},
        description="Another order for requests of a class; it cannot add a kind that `preference` leaves out.",
    )
    min_class_confidence: float = Field(
        default=0.6, ge=0, le=1, description="Requests whose class is less sure are served in the usual order."
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

    def preference_for(self, task: Task) -> tuple[DrafterKind, ...]:
        """Kinds for a request of this class, best first."""
        if task.confidence < self.min_class_confidence:
            return self.preference
        first = [kind for kind in self.class_preference.get(task.kind, ()) if kind in self.preference]
        return tuple(dict.fromkeys((*first, *self.preference)))
