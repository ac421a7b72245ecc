"""Accepted lengths of drafters that run in processes of their own, as in service, but without Ray."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from services.drafters.config import DrafterConfig
from services.training.evaluation.measure import measure
from services.training.evaluation.report import Result
from services.training.pipeline import Run
from services.training.synthesis.dialogue import CLASSES
from services.training.synthesis.evaluation import evaluation_prompts

_TIMEOUT_S = 60.0
_TEMPERATURES = (0.0, 1.0)
_MAX_DRAFT = {"mtp": 3, "dfly": 7, "lookup": 7}


def evaluate_all(
    run: Run, kinds: Sequence[str], weights: Path | None, tell: Callable[[str], None]
) -> tuple[list[Result], dict[str, Any]]:
    """Every kind on every class, greedy and at temperature 1, and the conditions they were measured under.

    Raises ValueError for an unknown kind, RuntimeError for a drafter that does not start or answer.
    """
    target, tokenizer = run.load()
    config = run.recipe.evaluation
    results = []
    for kind in kinds:
        if kind not in _MAX_DRAFT:
            raise ValueError(f"kind: {kind!r} is not known; it must be one of {', '.join(_MAX_DRAFT)}")
        folder = weights / kind if weights is not None else run.folder / kind / "drafter"
        with _drafter(_config_of(kind, folder), run.model.path) as address:
            for task_class in CLASSES:
                prompts = _spread(evaluation_prompts(task_class), config.prompts)
                for temperature in _TEMPERATURES:
                    found = measure(target, tokenizer, kind, address, _MAX_DRAFT[kind], prompts, temperature, config)
                    result = Result(kind, task_class, temperature, _MAX_DRAFT[kind], found.plain, found.looping)
                    results.append(result)
                    length = result.all.accepted_length
                    tell(f"{kind}, {task_class}, T={temperature:g}: {length:.3f} ({found.seconds:.0f} s)")
    conditions = {
        "target": run.model.name,
        "precision": target.precision,
        "template": "the target's own chat template",
        "prompts_a_class": config.prompts,
        "max_tokens": config.max_tokens,
        "loops": "answers whose end repeats itself three times or more over 32 tokens or more",
    }
    return results, conditions


def _spread(prompts: Sequence[Any], count: int) -> list[Any]:
    """Evenly over the whole set: MT-Bench is ordered by category."""
    count = min(count, len(prompts))
    return [prompts[i * len(prompts) // count] for i in range(count)]


def _config_of(kind: str, weights: Path) -> DrafterConfig:
    if kind == "lookup":
        return DrafterConfig(kind=kind)
    return DrafterConfig.model_validate({"kind": kind, "neural": {"weights": weights}})


@contextmanager
def _drafter(config: DrafterConfig, target: Path) -> Iterator[str]:
    """The address of a drafter replica in a process of its own."""
    command = [sys.executable, "-m", "orchestration.bench.drafter_process", "--config", config.model_dump_json()]
    command += ["--target", str(target)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        if not address:
            raise RuntimeError(f"the {config.kind} drafter did not start; it ended with {process.wait(_TIMEOUT_S)}")
        yield address
    finally:
        process.terminate()
        process.wait(_TIMEOUT_S)
