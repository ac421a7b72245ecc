"""What is simulated: fleet, work, drafts, failures."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from services.dcut.cluster.config import ClusterConfig
from services.dcut.local.config import LocalDcutConfig
from services.requests.speculation import MAX_DRAFT_TOKENS
from services.requests.task import TaskClass
from services.router.config import DrafterKind, RouterConfig


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StepPoint(_Settings):
    """One measured step of the target."""

    rows: int = Field(ge=1, le=1 << 16, description="Rows of decoding sequences, drafts included.")
    ms: float = Field(gt=0, le=1e6, description="Time of the step.")
    context: int = Field(default=256, ge=0, le=1 << 22, description="Positions before such a row.")
    prefill: int = Field(default=0, ge=0, le=1 << 20, description="Prompt rows in the same step.")


class TargetConfig(_Settings):
    replicas: int = Field(default=1, ge=1, le=1000, description="Target replicas.")
    steps: tuple[StepPoint, ...] = Field(
        default=(StepPoint(rows=1, ms=20), StepPoint(rows=8, ms=24), StepPoint(rows=64, ms=60)),
        min_length=1,
        max_length=1024,
        description="Step times; between them it is interpolated.",
    )
    max_sequences: int = Field(default=16, ge=1, le=1024, description="Sequences decoded together.")
    max_step_rows: int = Field(default=256, ge=16, le=8192, description="Rows of one step.")
    overhead_ms: float = Field(default=0.0, ge=0, le=1000, description="Time between two steps that no table has.")


class DraftCostConfig(_Settings):
    """Milliseconds of a draft round: a + b length + c sequences + d length sequences."""

    a: float = Field(default=1.5, ge=0, le=1000, description="Of a round.")
    b: float = Field(default=1.0, ge=0, le=1000, description="Of a draft position.")
    c: float = Field(default=0.1, ge=0, le=1000, description="Of a sequence.")
    d: float = Field(default=0.02, ge=0, le=1000, description="Of a position of a sequence.")


class DrafterConfig(_Settings):
    kind: DrafterKind = Field(description="mtp, dfly or lookup.")
    replicas: int = Field(default=1, ge=0, le=100, description="Replicas at the start.")
    min_replicas: int = Field(default=0, ge=0, le=100, description="Fewest, when they follow the work.")
    max_replicas: int = Field(default=0, ge=0, le=100, description="Most; 0: their number stays as it is.")
    cost: DraftCostConfig = Field(default=DraftCostConfig(), description="What a round takes its replica.")
    acceptance: dict[TaskClass, float] = Field(
        description="Mean probability that a draft token stands, given those before it, by class."
    )
    max_draft: int = Field(default=MAX_DRAFT_TOKENS, ge=1, le=MAX_DRAFT_TOKENS, description="Most tokens of a draft.")

    @model_validator(mode="after")
    def _ranges(self) -> DrafterConfig:
        for task, share in self.acceptance.items():
            if not 0 <= share < 1:
                raise ValueError(f"acceptance: {share} of {task} is out of range; it must be at least 0 and below 1")
        if self.max_replicas and self.max_replicas < self.min_replicas:
            raise ValueError(
                f"max_replicas: {self.max_replicas} is out of range; it must be at least min_replicas "
                f"({self.min_replicas})"
            )
        return self


class WorkConfig(_Settings):
    """Requests over time: a closed loop of so many at once, or arrivals by the clock."""

    concurrency: int = Field(default=0, ge=0, le=100_000, description="Requests at once; 0: they come by the rate.")
    rate: float = Field(default=1.0, gt=0, le=1e6, description="Requests a second, on average.")
    burstiness: float = Field(
        default=1.0, gt=0, le=100, description="Shape of the gaps: 1 is Poisson, less is burstier."
    )
    swing: float = Field(default=0.0, ge=0, lt=1, description="How far the rate swings about its mean, as a share.")
    period_s: float = Field(default=600.0, gt=0, le=1e6, description="Of that swing.")
    mix: dict[TaskClass, float] = Field(
        default={"chat": 0.5, "code": 0.3, "maths": 0.2}, description="Weight of each class."
    )
    prompt_tokens: int = Field(default=200, ge=1, le=1 << 20, description="Median length of a prompt.")
    answer_tokens: int = Field(default=150, ge=1, le=1 << 20, description="Median length of an answer.")
    spread: float = Field(default=0.5, ge=0, le=3, description="Of both, in logarithms.")
    variety: float = Field(
        default=3.0,
        gt=0,
        le=1000,
        description="How alike requests of a class are to their drafters; less is more varied.",
    )

    @model_validator(mode="after")
    def _weights(self) -> WorkConfig:
        if not self.mix or min(self.mix.values()) < 0 or not sum(self.mix.values()):
            raise ValueError("mix: it must name a class with a positive weight, and none with a negative one")
        return self


class FailureConfig(_Settings):
    """Exponential times; 0: never."""

    drafter_every_s: float = Field(default=0.0, ge=0, le=1e9, description="Mean time until a drafter replica dies.")
    target_every_s: float = Field(default=0.0, ge=0, le=1e9, description="Mean time until a target replica dies.")
    restart_s: float = Field(default=10.0, gt=0, le=1e5, description="From a death, or a wish, to a new replica.")


Policy = Literal["plain", "static", "quarters", "adaptive"]


class PolicyConfig(_Settings):
    """Who decides on drafts."""

    name: Policy = Field(
        default="adaptive",
        description="plain: no drafts. static: always the same kind and length. quarters: static, cut in the paper's "
        "form. adaptive: router, both D-cuts, rechoice.",
    )
    kind: DrafterKind = Field(default="mtp", description="Of static and quarters.")
    length: int = Field(default=3, ge=1, le=MAX_DRAFT_TOKENS, description="Draft tokens of static and quarters.")

    @property
    def title(self) -> str:
        return self.name if self.name in ("plain", "adaptive") else f"{self.name} {self.kind}-{self.length}"


class SimulationConfig(_Settings):
    target: TargetConfig = Field(default=TargetConfig(), description="The target pool.")
    drafters: tuple[DrafterConfig, ...] = Field(
        default=(
            DrafterConfig(kind="mtp", acceptance={"chat": 0.45, "code": 0.6, "maths": 0.5}),
            DrafterConfig(
                kind="dfly",
                acceptance={"chat": 0.4, "code": 0.75, "maths": 0.7},
                cost=DraftCostConfig(a=4.0, b=0.5),
                max_draft=7,
            ),
        ),
        max_length=8,
        description="The drafter pools.",
    )
    rpc_ms: float = Field(default=0.5, ge=0, le=1000, description="Way to a drafter and back.")
    work: WorkConfig = Field(default=WorkConfig(), description="The requests.")
    failures: FailureConfig = Field(default=FailureConfig(), description="What dies, and how often.")
    router: RouterConfig = Field(default=RouterConfig(), description="The router's own settings.")
    local_dcut: LocalDcutConfig = Field(default=LocalDcutConfig(), description="The targets' own settings.")
    cluster: ClusterConfig = Field(default=ClusterConfig(), description="The D-cut actor's own settings.")
    default_draft_tokens: int = Field(default=7, ge=1, le=MAX_DRAFT_TOKENS, description="Most that adaptive asks for.")
    seconds: float = Field(default=60.0, gt=0, le=1e6, description="Simulated time that counts.")
    warm_up_s: float = Field(default=10.0, ge=0, le=1e6, description="Simulated time before, that does not.")
    max_ttft_ms: float = Field(default=1000.0, gt=0, le=1e7, description="Objective of a request that counts as good.")
    max_tpot_ms: float = Field(default=50.0, gt=0, le=1e7, description="And for each further token, on average.")
    seed: int = Field(default=0, ge=0, le=2**31 - 1, description="Same seed, same simulation.")
