"""New drafters of each kind: configuration from target and recipe, model, how it is unrolled."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from services.drafters.dfly.config import DflyConfig
from services.drafters.dfly.model import DflyModel
from services.drafters.mtp.config import MtpConfig
from services.drafters.mtp.model import MtpModel
from services.drafters.neural.config import DecoderConfig
from services.drafters.neural.frozen import TargetFolder
from services.training.config import DflyTrainConfig, MtpTrainConfig, TrainConfig
from services.training.objectives import DflyUnroller, MtpUnroller, Unroller


@dataclass(frozen=True, slots=True)
class Trainee:
    """A drafter in training."""

    config: DecoderConfig
    model: nn.Module
    unroller: Unroller


def new_trainee(
    config: TrainConfig,
    target: TargetFolder,
    d2t: torch.Tensor,
    layers: tuple[int, ...],
    device: torch.device,
) -> Trainee:
    """Started from the target's own layers. `layers` are the captured ones.

    Raises ValueError for a recipe of no known kind.
    """
    dtype = torch.bfloat16 if config.bf16 else torch.float32
    parts, sizes = target.parts(dtype), target.sizes()
    vocabulary = d2t.numel() if d2t.numel() < sizes["vocab_size"] else 0
    torch.manual_seed(config.seed)
    if isinstance(config, MtpTrainConfig):
        mtp_config = MtpConfig(
            **sizes,
            num_hidden_layers=1,
            draft_vocab_size=vocabulary,
            draft_input_postnorm=config.postnorm,
            num_steps=config.num_steps,
        )
        mtp = MtpModel(mtp_config, parts, d2t)
        mtp.start_from(target)
        mtp.to(device)
        return Trainee(mtp_config, mtp, MtpUnroller(mtp, target.final_norm() if config.postnorm else None))
    if isinstance(config, DflyTrainConfig):
        dfly_config = DflyConfig(
            **sizes,
            num_hidden_layers=config.layers,
            draft_vocab_size=vocabulary,
            block_size=config.block_size,
            target_layer_ids=layers,
            target_num_hidden_layers=target.config.num_hidden_layers,
            enable_layer_fusion=config.fusion,
            enable_hidden_correction=config.correction,
        )
        dfly = DflyModel(dfly_config, parts, d2t)
        dfly.start_from(target)
        dfly.to(device)
        return Trainee(dfly_config, dfly, DflyUnroller(dfly, config.anchors))
    raise ValueError(f"training: there is no drafter kind for a {type(config).__name__}")
