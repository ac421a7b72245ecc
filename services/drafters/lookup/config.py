"""Settings of the lookup drafter."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator


class LookupConfig(BaseModel):
    """How far the lookup drafter looks back, and what it dares to propose."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_ngram: int = Field(default=2, ge=1, le=16, description="Tokens of the shortest suffix that counts as a match.")
    max_ngram: int = Field(default=16, ge=1, le=64, description="A match this long is not compared any further.")
    max_candidates: int = Field(
        default=32,
        ge=1,
        le=1024,
        description="Earlier places that share the shortest suffix, newest first, that are compared.",
    )
    doubt: float = Field(
        default=2.0, gt=0, le=100, description="A match of m tokens is believed with probability m / (m + doubt)."
    )

    @model_validator(mode="after")
    def _ordered(self) -> LookupConfig:
        if self.max_ngram < self.min_ngram:
            raise ValueError(
                f"max_ngram: {self.max_ngram} is out of range; it must be at least min_ngram ({self.min_ngram})"
            )
        return self
