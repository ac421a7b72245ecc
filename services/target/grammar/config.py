"""Settings of answers that follow a grammar."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class GrammarConfig(BaseModel):
    """Bounds. Those of the compiler and of one step are the library's own units of work, the same on every machine."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    compile_timeout_s: float = Field(
        10.0, gt=0, le=60, description="longest compilation of one grammar, and longest wait for one's turn, in seconds"
    )
    cached: int = Field(64, ge=1, le=4096, description="compiled grammars that are kept for the next request")
    max_size: int = Field(100_000, ge=100, le=10_000_000, description="symbols of one grammar")
    max_step_items: int = Field(50_000, ge=100, le=10_000_000, description="parser items that one token may take")
    max_lexer_states: int = Field(10_000, ge=100, le=1_000_000, description="lexer states of one answer, 1-2 KiB each")
    max_whitespace: int = Field(
        32, ge=0, le=1024, description="white space in a row; a model that likes it would write nothing else"
    )
