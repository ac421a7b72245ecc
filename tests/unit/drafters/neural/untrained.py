"""Drafters started from a target's layers and not trained, saved as checkpoints."""

from __future__ import annotations

from pathlib import Path

import torch

from services.drafters.dfly.config import DflyConfig, uniform_layers
from services.drafters.dfly.model import DflyModel
from services.drafters.mtp.config import MtpConfig
from services.drafters.mtp.model import MtpModel
from services.drafters.neural.checkpoint import save_checkpoint
from services.drafters.neural.frozen import TargetFolder


def save_untrained(target_folder: Path, folder: Path, **changes: object) -> dict[str, Path]:
    """Checkpoint folders by kind."""
    target = TargetFolder(target_folder)
    parts, sizes, layers = target.parts(torch.float32), target.sizes(), target.config.num_hidden_layers
    d2t = torch.arange(sizes["vocab_size"])
    mtp_config = MtpConfig.model_validate({**sizes, **changes})
    mtp = MtpModel(mtp_config, parts, d2t)
    dfly_config = DflyConfig.model_validate(
        {
            **sizes,
            "target_layer_ids": uniform_layers(layers),
            "target_num_hidden_layers": layers,
            **changes,
        }
    )
    dfly = DflyModel(dfly_config, parts, d2t)
    mtp.start_from(target)
    dfly.start_from(target)
    save_checkpoint(folder / "mtp", mtp_config, mtp, {"made": "untrained"})
    save_checkpoint(folder / "dfly", dfly_config, dfly, {"made": "untrained"})
    return {"mtp": folder / "mtp", "dfly": folder / "dfly"}
