"""Settings of who may use the doors."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator


class AccessConfig(BaseModel):
    """API keys, and who else may look in."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    keys_file: Path | None = Field(
        default=None,
        description="File of `draftfleet keys`, on every node with a gateway; none: whoever reaches a port may use it.",
    )
    reload_s: float = Field(
        default=1.0, gt=0, le=3600, description="A changed key file takes effect within so many seconds."
    )
    reflection: bool = Field(
        default=True, description="Tell gRPC clients of the API's messages; where keys are asked for, to their holders."
    )
    cors_origins: tuple[str, ...] = Field(
        default=(),
        max_length=64,
        description='Web pages that browsers may let use the HTTP API, such as "https://chat.example.org"; "*": all.',
    )

    @field_validator("keys_file")
    @classmethod
    def _from_anywhere(cls, path: Path | None) -> Path | None:
        """Replicas run in folders of their own."""
        return None if path is None else path.expanduser().absolute()
