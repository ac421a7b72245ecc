"""The training loop: one for all kinds of drafters, on one worker or many."""

from __future__ import annotations

import copy
import json
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn

from services.drafters.neural.checkpoint import save_checkpoint
from services.training.batches import Batch, Cursor, Packer, Prefetcher
from services.training.config import TrainConfig
from services.training.drafters import Trainee
from services.training.muon import Muon
from services.training.objectives import Unrolled, loss_of
from services.training.schedule import rate, stage_at
from services.training.state import TrainState, load_newest_state, save_state
from services.training.watch import LossWatch

log = logging.getLogger(__name__)

_EVAL_STREAM = 1 << 40  # seeds of evaluation draws, apart from those of steps


@dataclass(frozen=True, slots=True)
class TrainProgress:
    """`waiting` is the share of the time spent on reading captured data rather than on training."""

    step: int
    steps: int
    loss: float
    accepted: float  # simulated, of the newest quick evaluation; 0 before the first
    tokens_per_s: float
    waiting: float

    @property
    def bottleneck(self) -> str:
        return "capture" if self.waiting > 0.5 else "training"


@dataclass(frozen=True, slots=True)
class Workers:
    """This worker's place among all; gradients are averaged over them."""

    rank: int = 0
    world: int = 1


ALONE = Workers()


@dataclass(frozen=True, slots=True)
class RunPlace:
    """`folder` gets states and the learning curve, `export` the drafter; both belong to rank 0."""

    folder: Path
    export: Path
    provenance: Callable[[int, float], dict[str, Any]]  # of steps and simulated accepted length


class Trainer:
    def __init__(
        self,
        trainee: Trainee,
        config: TrainConfig,
        packer: Packer,
        held_out: Packer,
        place: RunPlace,
        device: torch.device,
        workers: Workers = ALONE,
    ) -> None:
        self._trainee, self._config, self._packer, self._held_out = trainee, config, packer, held_out
        self._place, self._device, self._workers = place, device, workers
        self.model = trainee.model
        self._optimizers = _optimizers(self.model, config)
        self._step, self._cursor = 0, Cursor()
        self._best = 0.0
        self._watch = LossWatch()
        self._accepted = 0.0
        self._num_tokens, self._seconds = 0, 0.0
        self._average: dict[str, torch.Tensor] = {}
        self._curve: list[dict[str, float]] = []
        self._recipe = config.model_dump_json()
        self._resume()

    def run(
        self, on_progress: Callable[[TrainProgress], None], is_stopped: Callable[[], bool], events: Any | None = None
    ) -> None:
        """Trains to the last step, or saves and returns soon after `is_stopped`.

        `events` is a TensorBoard writer or None. Raises TrainingDiverged.
        """
        config = self._config
        reader = Prefetcher(self._packer, self._cursor)
        saved_at = began = time.monotonic()
        seconds_before, tokens_before, waited = self._seconds, self._num_tokens, 0.0
        try:
            while self._step < config.steps:
                loss, waited_now = self._train_step(reader)
                waited += waited_now
                elapsed = time.monotonic() - began
                self._seconds = seconds_before + elapsed
                if self._step % config.quick_eval_every == 0 or self._step == config.steps:
                    self._evaluate(loss, events)
                speed = (self._num_tokens - tokens_before) / elapsed
                on_progress(TrainProgress(self._step, config.steps, loss, self._accepted, speed, waited / elapsed))
                is_due = time.monotonic() - saved_at >= config.save_every_s
                if is_stopped() or is_due or self._step == config.steps:
                    self._save()
                    saved_at = time.monotonic()
                    if is_stopped():
                        return
        finally:
            reader.stop()

    def _train_step(self, reader: Prefetcher) -> tuple[float, float]:
        """Loss, and seconds that were spent on waiting for data. Raises TrainingDiverged."""
        config = self._config
        stage = stage_at(self._step, config.steps, config.stages)
        if self._step and stage is not stage_at(self._step - 1, config.steps, config.stages):
            self._watch = LossWatch()
        share = rate(self._step, config.steps, config.optimizer)
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"] * share
        total = waited = 0.0
        for part in range(config.accumulate):
            asked = time.monotonic()
            batch, self._cursor = reader.next()
            waited += time.monotonic() - asked
            self._num_tokens += batch.num_tokens
            unrolled = self._unroll(batch.to(self._device), self._step * config.accumulate + part)
            loss = loss_of(unrolled, stage, config.decay_scale) / config.accumulate
            loss.backward()
            total += float(loss.detach())
        self._watch.add(total, self._step + 1)
        self._apply()
        self._step += 1
        return total, waited

    def quick_eval(self) -> tuple[float, list[float]]:
        """Simulated greedy accepted length, and acceptance of each position given those before, on held-out data.

        A draft token is accepted when it is the teacher's likeliest one. Every supervised position (for DFly
        every drawn anchor) begins a round, which real decoding does not: accepted tokens are skipped there.
        """
        averaged = self._averaged()
        reached = torch.zeros(0)
        total = torch.zeros(0)
        self.model.eval()
        with torch.no_grad():
            for index, batch in enumerate(self._held_out.once()):
                unrolled = self._unroll(batch.to(self._device), _EVAL_STREAM + index)
                whole_R = unrolled.valid_RG[:, 0]
                # Positions past the document's end say nothing.
                hits = (unrolled.hits_RG & unrolled.valid_RG)[whole_R].float().cumprod(1)
                valid = unrolled.valid_RG[whole_R].float()
                reached = reached + hits.sum(0).cpu() if reached.numel() else hits.sum(0).cpu()
                total = total + valid.sum(0).cpu() if total.numel() else valid.sum(0).cpu()
        self.model.train()
        if averaged is not None:
            self.model.load_state_dict(averaged, strict=False)
        positions = (reached / total.clamp(min=1)).tolist()
        return 1 + sum(positions), positions

    def _unroll(self, batch: Batch, stream: int) -> Unrolled:
        generator = torch.Generator().manual_seed(
            self._config.seed * 1_000_003 + stream * self._workers.world + self._workers.rank
        )
        cast = torch.autocast(self._device.type, torch.bfloat16) if self._config.bf16 else nullcontext()
        with cast:
            return self._trainee.unroller.unroll(batch, generator)

    def _apply(self) -> None:
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        if self._workers.world > 1:
            for parameter in parameters:
                dist.all_reduce(parameter.grad, dist.ReduceOp.SUM)
                parameter.grad.div_(self._workers.world)  # type: ignore[union-attr]
        nn.utils.clip_grad_norm_(parameters, self._config.optimizer.max_norm)
        for optimizer in self._optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        decay = self._config.optimizer.average
        if decay:
            if not self._average:
                self._average = {n: p.detach().clone() for n, p in self.model.named_parameters()}
            for name, parameter in self.model.named_parameters():
                self._average[name].lerp_(parameter.detach(), 1 - decay)

    def _averaged(self) -> dict[str, torch.Tensor] | None:
        """Puts the averaged weights in place; returns those that were there, None without averaging."""
        if not self._average:
            return None
        own = {n: p.detach().clone() for n, p in self.model.named_parameters()}
        self.model.load_state_dict(self._average, strict=False)
        return own

    def _evaluate(self, loss: float, events: Any | None) -> None:
        if self._workers.rank:
            return
        self._accepted, positions = self.quick_eval()
        point = {"step": self._step, "loss": loss, "accepted_length": self._accepted, "tokens": self._num_tokens}
        point.update({f"position_{i}": p for i, p in enumerate(positions, 1)})
        self._curve.append({**point, "seconds": round(self._seconds, 1)})
        self._place.folder.mkdir(parents=True, exist_ok=True)
        (self._place.folder / "curve.json").write_text(json.dumps(self._curve, indent=1) + "\n")
        if events is not None:
            for name, value in point.items():
                events.add_scalar(name, value, self._step)
        if self._accepted > self._best:
            self._best = self._accepted
            averaged = self._averaged()
            facts = self._place.provenance(self._step, self._accepted)
            save_checkpoint(self._place.export, self._trainee.config, self.model, facts)
            if averaged is not None:
                self.model.load_state_dict(averaged, strict=False)

    def _save(self) -> None:
        if self._workers.rank:
            return
        save_state(
            self._place.folder,
            TrainState(
                self._step,
                self._cursor,
                dict(self.model.named_parameters()),
                self._average,
                [copy.copy(optimizer.state_dict()) for optimizer in self._optimizers],
                self._best,
                self._watch.smoothed,
                self._watch.lowest,
                self._num_tokens,
                self._seconds,
                self._curve,
                self._recipe,
            ),
        )

    def _resume(self) -> None:
        state = load_newest_state(self._place.folder)
        if state is None:
            return
        if state.recipe != self._recipe:
            raise ValueError(
                f"{self._place.folder}: it holds a run of another recipe; continue that one, or give another folder"
            )
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(state.model[name])
        self._average = {name: tensor.to(self._device) for name, tensor in state.average.items()}
        for optimizer, saved in zip(self._optimizers, state.optimizers, strict=True):
            optimizer.load_state_dict(saved)
        self._step, self._cursor, self._best = state.step, state.cursor, state.best
        self._watch, self._curve = LossWatch(state.smooth_loss, state.lowest_loss), state.curve
        self._num_tokens, self._seconds = state.num_tokens, state.seconds
        self._accepted = self._curve[-1]["accepted_length"] if self._curve else 0.0
        log.info("going on from step %d", self._step)


def _optimizers(model: nn.Module, config: TrainConfig) -> list[torch.optim.Optimizer]:
    matrices = [cast(nn.Parameter, module.weight) for module in model.modules() if isinstance(module, nn.Linear)]
    known = {id(matrix) for matrix in matrices}
    vectors: Iterable[nn.Parameter] = [p for p in model.parameters() if id(p) not in known]
    settings = config.optimizer
    optimizers: list[torch.optim.Optimizer] = [
        Muon(matrices, settings.matrix_lr, weight_decay=settings.weight_decay),
        torch.optim.AdamW(vectors, settings.lr, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
    return optimizers
