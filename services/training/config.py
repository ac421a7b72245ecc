"""A recipe: everything that decides which drafters come out, in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from services.target.model.precision import Precision
from services.training.capture.config import CaptureConfig
from services.training.synthesis.config import SynthesisConfig
from services.training.synthesis.dialogue import CLASSES

RECIPES = Path(__file__).parent / "recipes"
Kind = Literal["mtp", "dfly"]
Objective = Literal["ce", "kl", "tv", "lk", "end_to_end_tv"]
Weighting = Literal["uniform", "decay", "dpace"]


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StageConfig(_Settings):
    """A part of the run with one loss."""

    share: float = Field(gt=0, le=1, description="Of the steps; the shares of all stages are scaled to sum to 1.")
    loss: Objective = Field(
        description="What is minimised; end_to_end_tv needs a drafter that already agrees a little."
    )
    weighting: Weighting = Field(default="uniform", description="Of draft positions; end_to_end_tv has its own.")


class OptimizerConfig(_Settings):
    lr: float = Field(default=1e-3, gt=0, le=1, description="AdamW's peak, for vectors and norms.")
    matrix_lr: float = Field(default=0.02, gt=0, le=1, description="Muon's peak, for matrices.")
    weight_decay: float = Field(default=0.0, ge=0, le=1, description="Decoupled, of matrices alone.")
    warmup: float = Field(default=0.04, ge=0, lt=1, description="Share of the steps until the peak.")
    final: float = Field(default=0.0, ge=0, le=1, description="Learning rate at the end, as a share of the peak.")
    max_norm: float = Field(default=1.0, gt=0, le=1e6, description="Gradients are clipped to this norm.")
    average: float = Field(default=0.0, ge=0, lt=1, description="Decay of the weights' moving average; 0: none.")


class ReadingConfig(_Settings):
    """How much of each class is read in an epoch; the rest waits for another one.

    The quick evaluation looks at held-out dialogues in the same shares.
    """

    chat: float = Field(default=1.0, ge=0, le=1, description="Share of the chat dialogues.")
    code: float = Field(default=1.0, ge=0, le=1, description="Share of the code dialogues.")
    maths: float = Field(default=1.0, ge=0, le=1, description="Share of the maths dialogues.")
    files: float = Field(default=1.0, ge=0, le=1, description="Share of the plain files.")

    def shares(self) -> tuple[float, ...]:
        """By class index, files last, as captured documents are grouped."""
        return (*(getattr(self, name) for name in CLASSES), self.files)


class TrainConfig(_Settings):
    """The training of one drafter."""

    steps: int = Field(default=1000, ge=1, le=10_000_000, description="Optimizer steps.")
    rows: int = Field(default=2, ge=1, le=4096, description="Packed rows of a batch, in each worker.")
    row_tokens: int = Field(default=1024, ge=16, le=65536, description="Tokens of a row; documents never look across.")
    reading: ReadingConfig = Field(default=ReadingConfig(), description="What the drafter specialises in.")
    accumulate: int = Field(default=1, ge=1, le=1024, description="Batches an optimizer step.")
    start: Path | None = Field(
        default=None, description="Checkpoint folder of a drafter to go on from; absent: the target's own layers."
    )
    draft_vocabulary: int = Field(
        default=8192, ge=16, le=1 << 22, description="Token ids that can be drafted, the most frequent ones."
    )
    stages: tuple[StageConfig, ...] = Field(
        default=(StageConfig(share=0.7, loss="lk"), StageConfig(share=0.3, loss="end_to_end_tv")),
        min_length=1,
        max_length=16,
        description="One after another.",
    )
    decay_scale: float = Field(default=4.0, gt=0, le=1000, description="Of the weighting decay: exp(-(k - 1) / scale).")
    optimizer: OptimizerConfig = Field(default=OptimizerConfig(), description="Muon beside AdamW.")
    bf16: bool = Field(default=True, description="Matrix products in bf16; weights and sums stay fp32.")
    seed: int = Field(default=0, ge=0, le=2**31 - 1, description="Of order, anchors and new weights.")
    quick_eval_every: int = Field(default=100, ge=1, description="Steps between two quick evaluations.")
    save_every_s: float = Field(default=120.0, ge=0, le=86400, description="Seconds between two checkpoints.")


class MtpTrainConfig(TrainConfig):
    num_steps: int = Field(default=3, ge=1, le=16, description="Steps of the training-time test, and of a draft.")
    postnorm: bool = Field(default=False, description="Hidden states after the final norm, own ones too.")


class DflyTrainConfig(TrainConfig):
    layers: int = Field(default=2, ge=1, le=16, description="Decoder layers of the drafter.")
    block_size: int = Field(default=8, ge=2, le=17, description="The anchor and the drafts after it.")
    anchors: int = Field(default=56, ge=1, le=4096, description="Blocks of each row.")
    fusion: bool = Field(default=True, description="Each layer weighs the captured outputs its own way.")
    correction: bool = Field(default=True, description="Correction by the token before.")


class EvalConfig(_Settings):
    prompts: int = Field(default=16, ge=1, le=10_000, description="Evaluation prompts of each class.")
    max_tokens: int = Field(default=192, ge=8, le=32768, description="Most tokens of an answer.")
    batch: int = Field(default=8, ge=1, le=1024, description="Sequences decoded together.")
    timed_prompts: int = Field(
        default=6,
        ge=0,
        le=1000,
        description="Prompts of each class that are also timed, alone, against plain decoding.",
    )


class Recipe(_Settings):
    """From a target to its drafters."""

    target: str = Field(default="default", min_length=1, description="default, a folder, a hub id or a .gguf file.")
    precision: Precision = Field(default="auto", description="Of the target's passes: auto, bf16, fp32 or checkpoint.")
    device: str = Field(default="auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$", description="auto: CUDA where it is.")
    threads: int = Field(default=0, ge=0, le=256, description="Compute threads; 0: as torch finds.")
    synthesis: SynthesisConfig = Field(default=SynthesisConfig(), description="Dialogues that the target writes.")
    capture: CaptureConfig = Field(default=CaptureConfig(), description="Hidden states left on disk.")
    mtp: MtpTrainConfig = Field(default=MtpTrainConfig(), description="Training of the MTP drafter.")
    dfly: DflyTrainConfig = Field(default=DflyTrainConfig(), description="Training of the DFly drafter.")
    evaluation: EvalConfig = Field(default=EvalConfig(), description="Evaluation through the real verification path.")


def load_recipe(name: str) -> Recipe:
    """A recipe by its name here, or from a YAML file.

    Raises ValueError when there is none, or when it holds something unknown or out of range.
    """
    path = RECIPES / f"{name}.yaml" if (RECIPES / f"{name}.yaml").is_file() else Path(name)
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in RECIPES.glob("*.yaml")))
        raise ValueError(f"recipe: {name!r} is neither a file nor one of {known}")
    loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    return Recipe.model_validate(loaded or {})
