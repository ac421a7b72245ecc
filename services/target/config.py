"""Settings of one target replica."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from services.dcut.local.config import LocalDcutConfig
from services.rpc.ports import ANY_PORT, PortRange
from services.target.drafting.config import DraftingConfig
from services.target.grammar.config import GrammarConfig
from services.target.model.precision import Precision


class EngineConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    precision: Precision = Field("auto", description="auto, bf16, fp32 or checkpoint (the checkpoint's own)")
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$", description="auto: CUDA where there is one")
    threads: int = Field(0, ge=0, le=256, description="OpenMP threads; 0: all cores given to the replica")
    max_sequences: int = Field(16, ge=1, le=1024, description="sequences decoded together")
    max_step_rows: int = Field(256, ge=16, le=8192, description="token rows of one step")
    max_queue: int = Field(
        256, ge=1, le=65536, description="sequences here; a key may hold no more than it leaves free"
    )
    max_unread_chunks: int = Field(
        1024, ge=16, le=1 << 20, description="chunks of one answer that may wait to be read; then it is ended"
    )
    kv_memory_mb: int = Field(448, ge=8, le=1 << 20, description="hard bound of the KV cache, MiB")
    hidden_memory_mb: int = Field(
        192, ge=0, le=1 << 20, description="hard bound of the hidden states kept beside the KV cache for drafters, MiB"
    )
    prefix_cache: bool = Field(True, description="keep the KV of earlier prompts while there is room")
    default_draft_tokens: int = Field(
        7, ge=0, le=16, description="most draft tokens of a round where the client names no limit"
    )
    gather_ms: float = Field(
        2.0, ge=0.0, le=100.0, description="how long a step waits for drafts on the way, even where it does not pay"
    )
    dcut: LocalDcutConfig = Field(
        default_factory=LocalDcutConfig, description="which drafts are worth asking for and verifying"
    )
    grammar: GrammarConfig = Field(
        default_factory=lambda: GrammarConfig(), description="answers that follow a JSON schema"
    )
    drafting: DraftingConfig = Field(default_factory=DraftingConfig, description="dealings with drafters")
    ports: PortRange = Field(ANY_PORT, description="where gateways reach the replica")
    report_period_s: float = Field(0.25, gt=0, le=10, description="how often the replica reports its load")
    lease_s: float = Field(2.0, gt=0, le=60, description="a replica that is silent for longer has left the fleet")
    drain_s: float = Field(5.0, ge=0, le=600, description="time that running requests get at shutdown")
