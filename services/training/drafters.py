"""New drafters of each kind: configuration from target and recipe, model, how it is unrolled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from services.drafters.dfly.checkpoint import load_dfly
from services.drafters.dfly.config import DflyConfig
from services.drafters.dfly.model import DflyModel
from services.drafters.mtp.checkpoint import load_mtp
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
    d2t: torch.Tensor  # token ids of the target that it can draft
    unroller: Unroller


def new_trainee(
    config: TrainConfig,
    target: TargetFolder,
    vocabulary: Callable[[int], torch.Tensor],
    layers: tuple[int, ...],
    device: torch.device,
) -> Trainee:
    """Started from another drafter where the recipe names one, else from the target's own layers.

    `vocabulary` gives d2t of a wanted size; `layers` are the captured ones.
    Raises ValueError for a recipe of no known kind and for a drafter that does not fit.
    """
    if config.start is not None:
        return _started(config, config.start, target, layers, device)
    dtype = torch.bfloat16 if config.bf16 else torch.float32
    parts, sizes = target.parts(dtype), target.sizes()
    d2t = vocabulary(config.draft_vocabulary)
    sizes["draft_vocab_size"] = d2t.numel() if d2t.numel() < sizes["vocab_size"] else 0
    torch.manual_seed(config.seed)
    if isinstance(config, MtpTrainConfig):
        mtp_config = MtpConfig(
            **sizes, num_hidden_layers=1, draft_input_postnorm=config.postnorm, num_steps=config.num_steps
        )
        mtp = MtpModel(mtp_config, parts, d2t)
        mtp.start_from(target)
        return _mtp_trainee(mtp.to(device), target)
    if isinstance(config, DflyTrainConfig):
        dfly_config = DflyConfig(
            **sizes,
            num_hidden_layers=config.layers,
            block_size=config.block_size,
            target_layer_ids=layers,
            target_num_hidden_layers=target.config.num_hidden_layers,
            enable_layer_fusion=config.fusion,
            enable_hidden_correction=config.correction,
        )
        dfly = DflyModel(dfly_config, parts, d2t)
        dfly.start_from(target)
        return _dfly_trainee(dfly.to(device), config)
    raise ValueError(f"training: there is no drafter kind for a {type(config).__name__}")


def _started(
    config: TrainConfig, folder: Path, target: TargetFolder, layers: tuple[int, ...], device: torch.device
) -> Trainee:
    """Its sizes and vocabulary are those of the checkpoint, whatever the recipe says of them."""
    if isinstance(config, DflyTrainConfig):
        dfly = load_dfly(folder, target)
        if dfly.config.target_layer_ids != layers:
            raise ValueError(f"start: {folder} reads layers {dfly.config.target_layer_ids}; captured are {layers}")
        return _dfly_trainee(dfly.to(device), config)
    return _mtp_trainee(load_mtp(folder, target).to(device), target)


def _mtp_trainee(model: MtpModel, target: TargetFolder) -> Trainee:
    norm_D = target.final_norm() if model.config.draft_input_postnorm else None
    return Trainee(model.config, model, model.vocabulary.d2t.cpu(), MtpUnroller(model, norm_D))


def _dfly_trainee(model: DflyModel, config: DflyTrainConfig) -> Trainee:
    return Trainee(model.config, model, model.vocabulary.d2t.cpu(), DflyUnroller(model, config.anchors))
