"""The training loop inside a Ray Train worker gives what it gives without Ray."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from services.models.source import ModelFolder
from services.training.capture.config import CaptureConfig
from services.training.capture.documents import Document
from services.training.capture.run import Capture
from services.training.config import Recipe
from services.training.pipeline import Run, trainer_of
from tests.engines import VOCABULARY, load_tiny, make_tiny_model

pytest.importorskip("pandas", reason="needs the training extra")

RECIPE = Recipe.model_validate(
    {
        "device": "cpu",
        "threads": 1,
        "capture": {"max_document": 48, "held_out": 4},
        "mtp": {"steps": 4, "rows": 2, "row_tokens": 64, "draft_vocabulary": 128, "quick_eval_every": 2},
    }
)


def test_one_worker_trains_to_the_same_weights(tmp_path: Path) -> None:
    from orchestration.ray_training import connected
    from services.training.distributed import fit_with_ray

    folder = make_tiny_model("llama", tmp_path / "tiny")
    rng = random.Random(5)
    documents = [Document(tuple(rng.randrange(VOCABULARY) for _ in range(40)), 4, 0) for _ in range(20)]
    model = ModelFolder(folder, "tiny")
    places = [tmp_path / "plain", tmp_path / "ray"]
    for place in places:
        config = CaptureConfig(max_document=48, top_tokens=8, pass_rows=64)
        capture = Capture(load_tiny(folder, "fp32"), "tiny", (), config, place / "captured")
        capture.run([("a", documents)], lambda _: None, lambda: False)
    trainer_of(Run(RECIPE, places[0], model), "mtp").run(lambda _: None, lambda: False)
    with connected(None, workers=1):
        fit_with_ray(RECIPE, places[1], model, "mtp", workers=1)
    weights = [load_file(place / "mtp" / "drafter" / "model.safetensors") for place in places]
    assert weights[0].keys() == weights[1].keys()
    for name, tensor in weights[0].items():
        assert torch.equal(tensor, weights[1][name]), name
