"""The same training loop on several Ray Train workers."""

from __future__ import annotations

import logging
import signal
import threading
from pathlib import Path
from typing import Any

from services.models.source import ModelFolder
from services.training.config import Kind, Recipe

log = logging.getLogger(__name__)


def fit_with_ray(recipe: Recipe, folder: Path, model: ModelFolder, kind: Kind, workers: int) -> None:
    """Trains with `workers` workers, each on its own share of the documents, gradients averaged.

    The run folder must be visible to all workers at the same path. Raises what a worker raised.
    """
    import torch
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    settings = {
        "recipe": recipe.model_dump(mode="json"),
        "folder": str(folder.resolve()),
        "model": str(model.path),
        "name": model.name,
        "kind": kind,
    }
    use_gpu = recipe.device != "cpu" and torch.cuda.is_available()
    TorchTrainer(
        train_worker,
        train_loop_config=settings,
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=use_gpu),
        run_config=RunConfig(name=kind, storage_path=str((folder / "ray").resolve())),
    ).fit()


def train_worker(settings: dict[str, Any]) -> None:
    """One worker's part. SIGTERM ends it after the step in hand, with its state saved."""
    from ray import train

    from services.training.pipeline import Run, trainer_of
    from services.training.trainer import TrainProgress, Workers

    context = train.get_context()
    workers = Workers(context.get_world_rank(), context.get_world_size())
    run = Run(
        Recipe.model_validate(settings["recipe"]),
        Path(settings["folder"]),
        ModelFolder(Path(settings["model"]), settings["name"]),
    )
    stopped = threading.Event()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: stopped.set())

    def tell(progress: TrainProgress) -> None:
        if progress.step % run.recipe.mtp.quick_eval_every == 0 or progress.step == progress.steps:
            train.report({"step": progress.step, "loss": progress.loss, "accepted_length": progress.accepted})

    trainer_of(run, settings["kind"], workers).run(tell, stopped.is_set)
