"""Capture and training on a small random target, to the bit."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from services.models.source import ModelFolder
from services.target.model.loader import LoadedTarget
from services.training.capture.config import CaptureConfig
from services.training.capture.documents import Document
from services.training.capture.run import Capture
from services.training.capture.shards import CapturedDocuments
from services.training.config import Kind, OptimizerConfig, Recipe, StageConfig
from services.training.pipeline import Run, trainer_of
from services.training.trainer import Trainer, TrainProgress
from services.training.watch import TrainingDiverged
from tests.engines import VOCABULARY, load_tiny, make_tiny_model

LAYERS = (0, 1)
_STAGES = (StageConfig(share=0.5, loss="lk", weighting="dpace"), StageConfig(share=0.5, loss="end_to_end_tv"))
_COMMON = {
    "steps": 8,
    "rows": 2,
    "row_tokens": 64,
    "accumulate": 2,
    "draft_vocabulary": 128,
    "stages": _STAGES,
    "quick_eval_every": 3,
    "save_every_s": 3600.0,
    "optimizer": OptimizerConfig(average=0.5),
}
RECIPE = Recipe.model_validate(
    {"capture": {"max_document": 48, "held_out": 4}, "mtp": _COMMON, "dfly": {**_COMMON, "block_size": 4, "anchors": 6}}
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model("llama", tmp_path_factory.mktemp("target") / "tiny")


@pytest.fixture(scope="module")
def target(folder: Path) -> LoadedTarget:
    return load_tiny(folder, "fp32")


def _documents(count: int, seed: int) -> list[Document]:
    rng = random.Random(seed)
    return [
        Document(tuple(rng.randrange(VOCABULARY) for _ in range(rng.randrange(12, 48))), rng.randrange(1, 8), 0)
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def captured(folder: Path, target: LoadedTarget, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("run")
    work = Capture(target, "tiny", LAYERS, CaptureConfig(max_document=48, top_tokens=8, pass_rows=64), run / "captured")
    work.run([("a", _documents(12, 1)), ("b", _documents(8, 2))], lambda _: None, lambda: False)
    return run


def _run(folder: Path, captured: Path, place: Path, recipe: Recipe = RECIPE) -> Run:
    place.mkdir(parents=True, exist_ok=True)
    if not (place / "captured").exists():
        (place / "captured").symlink_to(captured / "captured")
    return Run(recipe, place, ModelFolder(folder, "tiny"))


def test_captured_rows_are_those_of_a_pass_alone(target: LoadedTarget, captured: Path) -> None:
    documents = CapturedDocuments(captured / "captured", with_features=True)
    wanted = [*_documents(12, 1), *_documents(8, 2)]
    assert len(documents) == len(wanted)
    for index in (0, 11, 12, 19):
        found, document = documents[index], wanted[index]
        assert found.tokens_S.tolist() == list(document.tokens)
        first = document.first_supervised
        assert found.supervised_S.tolist() == [i >= first for i in range(len(document.tokens))]
        has_teacher = torch.isfinite(found.top_logprobs_SK).all(-1).tolist()
        assert has_teacher == [first - 1 <= i < len(document.tokens) - 1 for i in range(len(document.tokens))]
        logits = _logits(target, document)
        rows = slice(first - 1, len(document.tokens) - 1)
        exact = logits[rows].log_softmax(-1).gather(-1, found.top_ids_SK[rows])
        torch.testing.assert_close(found.top_logprobs_SK[rows], exact, atol=1e-4, rtol=1e-4)
        assert found.top_ids_SK[rows, 0].tolist() == logits[rows].argmax(-1).tolist()


def _logits(target: LoadedTarget, document: Document) -> torch.Tensor:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(_FOLDERS[id(target)], dtype=torch.float32)
    with torch.no_grad():
        logits: torch.Tensor = model(torch.tensor([document.tokens])).logits[0]
    return logits


_FOLDERS: dict[int, Path] = {}


@pytest.fixture(autouse=True)
def _remember(folder: Path, target: LoadedTarget) -> None:
    _FOLDERS[id(target)] = folder


def test_capture_does_nothing_twice_and_refuses_other_layers(target: LoadedTarget, captured: Path) -> None:
    path = captured / "captured"
    config = CaptureConfig(max_document=48, top_tokens=8, pass_rows=64)
    times = {p: p.stat().st_mtime_ns for p in path.glob("*.safetensors")}
    told: list[int] = []
    shards = [("a", _documents(12, 1)), ("b", _documents(8, 2))]
    Capture(target, "tiny", LAYERS, config, path).run(shards, lambda p: told.append(p.num_documents), lambda: False)
    assert told == [12, 20]
    assert times == {p: p.stat().st_mtime_ns for p in path.glob("*.safetensors")}
    with pytest.raises(ValueError, match="another folder"):
        Capture(target, "tiny", (1,), config, path)


def test_capture_stops_at_its_bound(target: LoadedTarget, tmp_path: Path) -> None:
    config = CaptureConfig(max_document=512, top_tokens=64, pass_rows=2048, max_disk_mb=16)
    shards = [(f"{i:03d}", [Document((7,) * 512, 1, 0)] * 12) for i in range(12)]
    Capture(target, "tiny", LAYERS, config, tmp_path).run(shards, lambda _: None, lambda: False)
    sizes = [p.stat().st_size for p in tmp_path.glob("*.safetensors")]
    assert 16 << 20 <= sum(sizes) < (16 << 20) + max(sizes)


def _train(trainer: Trainer, stop_after: int | None = None) -> list[TrainProgress]:
    told: list[TrainProgress] = []
    trainer.run(told.append, lambda: stop_after is not None and bool(told) and told[-1].step >= stop_after)
    return told


@pytest.mark.parametrize("kind", ["mtp", "dfly"])
def test_a_stopped_run_goes_on_to_the_same_bits(folder: Path, captured: Path, tmp_path: Path, kind: Kind) -> None:
    whole, parts = _run(folder, captured, tmp_path / "whole"), _run(folder, captured, tmp_path / "parts")
    losses = [p.loss for p in _train(trainer_of(whole, kind))]
    assert len(losses) == 8
    pieces = [p.loss for p in _train(trainer_of(parts, kind), stop_after=3)]
    assert len(pieces) == 3
    pieces += [p.loss for p in _train(trainer_of(parts, kind), stop_after=6)]
    pieces += [p.loss for p in _train(trainer_of(parts, kind))]
    assert pieces == losses
    newest = [sorted((run.folder / kind).glob("step-*"))[-1] / "state.pt" for run in (whole, parts)]
    states = [torch.load(path, weights_only=True) for path in newest]
    for group in ("model", "average"):
        assert states[0][group].keys() == states[1][group].keys()
        for name, tensor in states[0][group].items():
            assert torch.equal(tensor, states[1][group][name]), name
    curves = [json.loads((run.folder / kind / "curve.json").read_text()) for run in (whole, parts)]
    for first, second in zip(*curves, strict=True):
        assert first["accepted_length"] == second["accepted_length"]


@pytest.mark.parametrize("kind", ["mtp", "dfly"])
def test_the_drafter_is_saved_with_where_it_comes_from(
    folder: Path, captured: Path, tmp_path: Path, kind: Kind
) -> None:
    optimizer = OptimizerConfig(average=0.0, matrix_lr=0.01)
    recipe = _with(kind, steps=30, optimizer=optimizer, stages=(StageConfig(share=1, loss="kl"),), quick_eval_every=30)
    run = _run(folder, captured, tmp_path, recipe)
    losses = [p.loss for p in _train(trainer_of(run, kind))]
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])
    drafter = run.drafter(kind)
    facts = json.loads((drafter / "provenance.json").read_text())
    assert facts["step"] == 30
    assert facts["recipe"][kind]["steps"] == 30
    assert len(facts["data"]) == 32
    tensors = load_file(drafter / "model.safetensors")
    assert tensors["d2t"].numel() == 128
    assert all(t.dtype == torch.bfloat16 for name, t in tensors.items() if name != "d2t")
    with safe_open(drafter / "model.safetensors", framework="pt") as file:
        assert not [name for name in file.keys() if "embedding" in name and "mask" not in name]  # noqa: SIM118


def _with(kind: Kind, **settings: object) -> Recipe:
    config = getattr(RECIPE, kind).model_copy(update=settings)
    return RECIPE.model_copy(update={kind: config})


def test_a_run_of_another_recipe_is_not_mixed_in(folder: Path, captured: Path, tmp_path: Path) -> None:
    _train(trainer_of(_run(folder, captured, tmp_path), "mtp"), stop_after=1)
    with pytest.raises(ValueError, match="another recipe"):
        trainer_of(_run(folder, captured, tmp_path, _with("mtp", steps=9)), "mtp")


def test_a_loss_that_is_no_number_stops_the_run_with_a_reason(folder: Path, captured: Path, tmp_path: Path) -> None:
    trainer = trainer_of(_run(folder, captured, tmp_path), "mtp")
    with torch.no_grad():
        next(trainer.model.parameters()).fill_(torch.nan)
    with pytest.raises(TrainingDiverged, match="step 1"):
        _train(trainer)
    assert not list((tmp_path / "mtp").glob("step-*"))
