"""What the configurations of all drafters with weights have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator


class DecoderConfig(BaseModel):
    """Sizes of a drafter's decoder layers, named as in transformers configurations."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    hidden_size: int = Field(ge=16, le=1 << 16, description="Width D, the target's own.")
    intermediate_size: int = Field(ge=16, le=1 << 18, description="Width of the feed-forward part.")
    num_hidden_layers: int = Field(ge=1, le=16, description="Decoder layers of the drafter.")
    num_attention_heads: int = Field(ge=1, le=1024, description="Query heads.")
    num_key_value_heads: int = Field(ge=1, le=1024, description="Key and value heads.")
    head_dim: int = Field(ge=2, le=1024, description="Size of a head.")
    rms_norm_eps: float = Field(default=1e-6, gt=0, lt=1, description="Added to the mean square in every norm.")
    rope_theta: float = Field(default=10000.0, gt=1, description="Base of the rotary embedding.")
    has_qk_norm: bool = Field(default=False, description="Queries and keys are normed before they are rotated.")
    attention_bias: bool = Field(default=False, description="Query, key and value projections have a bias.")
    vocab_size: int = Field(ge=2, le=1 << 22, description="Token ids of the target.")
    draft_vocab_size: int = Field(
        default=0, ge=0, le=1 << 22, description="Token ids that can be drafted; 0: all of the target's."
    )
    window: int = Field(
        default=1024, ge=16, le=1 << 20, description="Newest positions that a draft looks back at, trained and served."
    )
    max_position_embeddings: int = Field(
        default=8192, ge=32, le=1 << 22, description="Positions at and past it are not drafted."
    )
    target_fingerprint: str = Field(
        default="", max_length=64, description="Tells the target it was trained for; see fingerprint.py."
    )

    @model_validator(mode="after")
    def _fits(self) -> DecoderConfig:
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_key_value_heads: {self.num_key_value_heads} does not divide num_attention_heads "
                f"({self.num_attention_heads})"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim: {self.head_dim} is odd; the rotary embedding turns pairs")
        if self.draft_vocab_size > self.vocab_size:
            raise ValueError(
                f"draft_vocab_size: {self.draft_vocab_size} is out of range; it must be at most vocab_size "
                f"({self.vocab_size})"
            )
        return self

    @property
    def num_draft_tokens(self) -> int:
        """Token ids that can be drafted, V'."""
        return self.draft_vocab_size or self.vocab_size
