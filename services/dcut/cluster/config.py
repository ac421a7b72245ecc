"""Settings of what the D-cut actor decides for the fleet."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator


class ClusterConfig(BaseModel):
    """Prices, admission and the number of drafter replicas, from the reports of all of them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    memory: float = Field(
        default=200.0, ge=1, le=1e6, description="Samples of a class after which an old one counts for 1/e."
    )
    smoothing_s: float = Field(default=1.0, gt=0, le=600, description="Time over which drafters' business is smoothed.")
    busy_low: float = Field(default=0.65, gt=0, lt=1, description="Business below which drafts become cheaper.")
    busy_high: float = Field(default=0.85, gt=0, le=1, description="Business above which drafts become dearer.")
    busy_wanted: float = Field(default=0.6, gt=0, le=1, description="Business that the wanted replicas would have.")
    max_price_s: float = Field(
        default=0.02, gt=0, le=10, description="Highest price of a draft token, in seconds of a target's time."
    )
    hold_s: float = Field(default=2.0, ge=0, le=600, description="Least time between two changes of who may draft.")
    fewer_after_s: float = Field(
        default=30.0,
        ge=0,
        le=86400,
        description="How long fewer replicas must have been enough until fewer are wanted.",
    )

    @model_validator(mode="after")
    def _ordered(self) -> ClusterConfig:
        if self.busy_low >= self.busy_high:
            raise ValueError(
                f"busy_low: {self.busy_low} is out of range; it must be less than busy_high ({self.busy_high})"
            )
        return self
