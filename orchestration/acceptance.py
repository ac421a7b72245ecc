"""Accepted lengths of drafters that run in processes of their own, as in service, but without Ray."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestration.bench.paired import summarise
from orchestration.drafter_process import running
from services.drafters.config import DrafterConfig
from services.rpc.credential import Credential
from services.training.evaluation.measure import Drafting, Trial
from services.training.evaluation.report import Result, Speedup, as_line
from services.training.pipeline import Run
from services.training.synthesis.dialogue import CLASSES
from services.training.synthesis.evaluation import evaluation_prompts

_TEMPERATURES = (0.0, 1.0)
_MAX_DRAFT = {"mtp": 3, "dfly": 7, "lookup": 7}


@dataclass(frozen=True, slots=True)
class _Arm:
    """How answers are sampled and drafted."""

    temperature: float
    is_argmax: bool = False
    is_timed: bool = True


_ARMS = (_Arm(0.0), _Arm(1.0), _Arm(1.0, is_argmax=True, is_timed=False))


def evaluate_all(
    run: Run, kinds: Sequence[str], weights: Path | None, tell: Callable[[str], None]
) -> tuple[list[Result], dict[str, Any]]:
    """Every kind on every class, greedy and at temperature 1, and the conditions they were measured under.

    Raises ValueError for an unknown kind, RuntimeError for a drafter that does not start or answer.
    """
    unknown = next((kind for kind in kinds if kind not in _MAX_DRAFT), None)
    if unknown is not None:
        raise ValueError(f"kind: {unknown!r} is not known; it must be one of {', '.join(_MAX_DRAFT)}")
    target, tokenizer = run.load()
    config = run.recipe.evaluation
    prompts = {task_class: _spread(evaluation_prompts(task_class), config.prompts) for task_class in CLASSES}
    results = []
    for kind in kinds:
        folder = run.folder / kind / "drafter" if weights is None else weights / kind
        credential = Credential.random()
        arguments = ("--config", _config_of(kind, folder).model_dump_json(), "--target", str(run.model.path))
        with running(credential, *arguments) as address:
            for task_class, arm in itertools.product(CLASSES, _ARMS):
                if arm.is_argmax and kind == "lookup":
                    continue  # it knows no noise
                drafting = Drafting(kind, address, _MAX_DRAFT[kind], arm.is_argmax, credential)
                chosen = prompts[task_class]
                with Trial(target, tokenizer, drafting, config.max_tokens, config.batch) as trial:
                    found = trial.measure(chosen, arm.temperature)
                    pairs = trial.race(_spread(chosen, config.timed_prompts), arm.temperature) if arm.is_timed else []
                result = Result(
                    kind, task_class, arm.temperature, drafting.max_draft, found.plain, found.looping,
                    arm.is_argmax, _speedup(pairs),
                )  # fmt: skip
                results.append(result)
                tell(as_line(result))
    conditions = {
        "target": run.model.name,
        "precision": target.precision,
        "template": "the target's own chat template",
        "prompts_a_class": config.prompts,
        "timed_prompts_a_class": config.timed_prompts,
        "max_tokens": config.max_tokens,
        "loops": "answers whose end repeats itself three times or more over 32 tokens or more",
    }
    return results, conditions


def _speedup(pairs: Sequence[tuple[float, float]]) -> Speedup | None:
    """None for fewer than two pairs, which have no interval."""
    if len(pairs) < 2:
        return None
    found = summarise([pair[0] for pair in pairs], [pair[1] for pair in pairs])
    return Speedup(found.ratio, found.low, found.high, len(pairs))


def _spread(prompts: Sequence[Any], count: int) -> list[Any]:
    """Evenly over the whole set: MT-Bench is ordered by category."""
    count = min(count, len(prompts))
    return [prompts[i * len(prompts) // count] for i in range(count)]


def _config_of(kind: str, weights: Path) -> DrafterConfig:
    if kind == "lookup":
        return DrafterConfig(kind=kind)
    return DrafterConfig.model_validate({"kind": kind, "neural": {"weights": weights}})
