"""The steps of a recipe over one run folder: dialogues/, captured/, mtp/, dfly/."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from services.drafters.dfly.config import uniform_layers
from services.drafters.neural.frozen import TargetFolder
from services.models.cache import cache_root
from services.models.source import ModelFolder
from services.models.tokenizer import eos_ids, load_tokenizer
from services.target.model.loader import LoadedTarget, load_target
from services.training.batches import Packer
from services.training.capture.documents import PLAIN_TEXT, dialogue_shards, file_shards, library_files
from services.training.capture.run import Capture, CaptureProgress
from services.training.capture.shards import CapturedDocuments
from services.training.config import Kind, Recipe, TrainConfig
from services.training.drafters import new_trainee
from services.training.provenance import provenance
from services.training.synthesis.run import Synthesis, SynthesisProgress
from services.training.trainer import ALONE, RunPlace, Trainer, Workers
from services.training.vocabulary import draft_vocabulary

IsStopped = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Run:
    """A recipe, the folder of its data, and the local folder of its target."""

    recipe: Recipe
    folder: Path
    model: ModelFolder

    @property
    def dialogues(self) -> Path:
        return self.folder / "dialogues"

    @property
    def captured(self) -> Path:
        return self.folder / "captured"

    def drafter(self, kind: Kind) -> Path:
        """The newest best checkpoint of a kind."""
        return self.folder / kind / "drafter"

    @property
    def device(self) -> torch.device:
        name = self.recipe.device
        return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)

    def set_threads(self) -> None:
        if self.recipe.threads:
            torch.set_num_threads(self.recipe.threads)

    def load(self) -> tuple[LoadedTarget, PreTrainedTokenizerBase]:
        """The target, ready for passes."""
        self.set_threads()
        path = self.model.path
        tokenizer = load_tokenizer(path)
        ends = eos_ids(path, tokenizer)
        target = load_target(path, ends, self.recipe.precision, self.device, 256, cache_root())
        return target, tokenizer


def synthesize(run: Run, on_progress: Callable[[SynthesisProgress], None], is_stopped: IsStopped) -> None:
    target, tokenizer = run.load()
    Synthesis(target, tokenizer, run.recipe.synthesis, run.dialogues).run(on_progress, is_stopped)


def capture(run: Run, on_progress: Callable[[CaptureProgress], None], is_stopped: IsStopped) -> None:
    """Dialogues first, then Python's own library where the recipe asks for it."""
    target, tokenizer = run.load()
    config = run.recipe.capture
    layers = uniform_layers(target.spec.layers, config.feature_layers) if config.feature_layers else ()
    work = Capture(target, run.model.name, layers, config, run.captured)
    work.run(dialogue_shards(run.dialogues, config.max_document), on_progress, is_stopped)
    if config.library_tokens and not is_stopped():
        files = library_files(run.recipe.synthesis.seed)
        shards = file_shards(files, tokenizer, config.max_document, config.library_tokens, config.shard_tokens)
        work.run(shards, on_progress, is_stopped)


def trainer_of(run: Run, kind: Kind, workers: Workers = ALONE) -> Trainer:
    """Ready to run, at its newest state. Raises ValueError when nothing has been captured."""
    run.set_threads()
    config: TrainConfig = run.recipe.mtp if kind == "mtp" else run.recipe.dfly
    documents = CapturedDocuments(run.captured, with_features=kind == "dfly")
    chosen, held_out = _split(documents, run.recipe.capture.held_out)
    target = TargetFolder(run.model.path)
    ends = eos_ids(run.model.path, load_tokenizer(run.model.path))
    trainee = new_trainee(
        config,
        target,
        lambda size: draft_vocabulary(documents, chosen, size, ends),
        documents.info.layers,
        run.device,
    )
    reads = (trainee.d2t, config.rows, config.row_tokens, config.seed)
    shares = config.reading.shares()
    packer = Packer(documents, chosen, *reads, workers.rank, workers.world, shares)
    quick = Packer(documents, held_out, *reads, shares=shares)

    def facts(step: int, accepted: float) -> dict[str, Any]:
        # Paths say nothing elsewhere.
        hidden: dict[str, Any] = {"mtp": {"start"}, "dfly": {"start"}}
        if run.recipe.target != "default" and Path(run.recipe.target).exists():
            hidden["target"] = True
        recipe = run.recipe.model_dump(mode="json", exclude=hidden)
        simulated = {"step": step, "simulated_accepted_length": round(accepted, 4)}
        return provenance(recipe, documents.paths, target=run.model.name, kind=kind, **simulated)

    place = RunPlace(run.folder / kind, run.drafter(kind), facts)
    return Trainer(trainee, config, packer, quick, place, run.device, workers)


def _split(documents: CapturedDocuments, held_out: int) -> tuple[list[int], list[int]]:
    """Documents to train on, and evenly spread dialogues to look at."""
    dialogues = [i for i, group in enumerate(documents.groups) if group < PLAIN_TEXT]
    count = min(held_out, len(dialogues) // 4)
    if not count:
        raise ValueError(f"captured documents: {len(dialogues)} dialogues are too few to hold some out; capture more")
    apart = {dialogues[i * len(dialogues) // count] for i in range(count)}
    return [i for i in range(len(documents)) if i not in apart], sorted(apart)
