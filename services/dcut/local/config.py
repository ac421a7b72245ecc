"""Settings of a target replica's own D-cut."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Mode = Literal["off", "quarters", "exact"]


class LocalDcutConfig(BaseModel):
    """Whose drafts are worth asking for, and which offered rows are worth verifying. Never changes a text."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Mode = Field(
        default="exact",
        description="exact: ask and keep what pays. quarters: always ask, keep a quarter, a half, three quarters or "
        "all (the paper's form). off: always ask, keep everything.",
    )
    objective: Literal["tokens", "requests"] = Field(
        default="tokens",
        description="What is made most of in a second. tokens: those of the next step, as in the paper. requests: a "
        "token counts by its share of its sequence's progress; serves more of a mix of requests in the long run.",
    )
    profile: bool = Field(
        default=True, description="Measure the target's step at start-up; otherwise costs are learned while it serves."
    )
    profile_budget_s: float = Field(default=10.0, gt=0, le=600, description="Longest that this measuring may take.")
    probe_share: float = Field(
        default=0.01,
        gt=0,
        le=0.5,
        description="Share of the tokens that probing may cost: asking sequences for a draft that is not worth it yet.",
    )
    first_probe: int = Field(
        default=4, ge=1, le=1 << 16, description="Fewest steps without a draft before a sequence is probed."
    )
    last_probe: int = Field(
        default=512, ge=1, le=1 << 20, description="Most such steps; the pause doubles with every probe in vain."
    )

    @field_validator("mode", mode="before")
    @classmethod
    def _as_written(cls, mode: Any) -> Any:
        """YAML takes a bare off for false."""
        return "off" if mode is False else mode

    @model_validator(mode="after")
    def _ordered(self) -> LocalDcutConfig:
        if self.last_probe < self.first_probe:
            raise ValueError(
                f"last_probe: {self.last_probe} is out of range; it must be at least first_probe ({self.first_probe})"
            )
        return self
