"""Settings of an MTP drafter, stored beside its weights."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from services.drafters.neural.config import DecoderConfig


class MtpConfig(DecoderConfig):
    """One decoder layer that predicts from the target's last hidden state and the token after it."""

    kind: Literal["mtp"] = "mtp"
    num_hidden_layers: int = Field(default=1, ge=1, le=1, description="Decoder layers of the drafter; always 1.")
    draft_input_postnorm: bool = Field(
        default=False,
        description="Hidden states are taken after the final norm: the target's, and the drafter's own fed back.",
    )
    num_steps: int = Field(default=3, ge=1, le=16, description="Steps it was unrolled for; drafts are no longer.")
