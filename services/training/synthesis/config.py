"""Settings of the synthesis of training dialogues."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator


class SynthesisConfig(BaseModel):
    """How many dialogues of which kind the target writes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dialogues: int = Field(
        default=4096, ge=1, le=10_000_000, description="Prompts that are answered, dropped ones too."
    )
    chat: float = Field(default=0.4, ge=0, le=1, description="Share of chat prompts.")
    code: float = Field(default=0.35, ge=0, le=1, description="Share of code prompts.")
    maths: float = Field(default=0.25, ge=0, le=1, description="Share of maths prompts.")
    self_written: float = Field(
        default=0.6, ge=0, le=1, description="Share of user turns that the target itself writes; the rest are packaged."
    )
    greedy: float = Field(default=0.5, ge=0, le=1, description="Share of greedy answers; the rest are sampled at T=1.")
    max_answer: int = Field(default=384, ge=8, le=32768, description="Most tokens of an answer.")
    max_prompt: int = Field(default=512, ge=8, le=32768, description="Longer prompts are dropped.")
    min_answer: int = Field(default=8, ge=1, le=1024, description="Shorter answers are dropped, cut loops included.")
    batch: int = Field(default=48, ge=1, le=1024, description="Sequences decoded together.")
    kv_memory_mb: int = Field(default=2048, ge=8, le=1 << 20, description="Hard bound of the KV cache, MiB.")
    shard: int = Field(default=64, ge=1, le=65536, description="Prompts a shard; the unit that a stop may cost.")
    seed: int = Field(default=0, ge=0, le=2**31 - 1, description="Same seed and target, same prompts.")

    @model_validator(mode="after")
    def _sums(self) -> SynthesisConfig:
        total = self.chat + self.code + self.maths
        if abs(total - 1) > 1e-6:
            raise ValueError(f"chat + code + maths: {total} is out of range; the shares must sum to 1")
        return self
