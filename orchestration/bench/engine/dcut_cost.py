"""What D-cut's own decisions take, beside the step that they are about.

python -m orchestration.bench.engine.dcut_cost

Decisions are those of a target in service: a drafter each for a half of the sequences, seven
drafts offered, confidences at random, step times as measured for the default model here.
"""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import dataclass
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

from services.dcut.costs.drafts import DraftWait
from services.dcut.costs.steps import StepCosts
from services.dcut.local.config import LocalDcutConfig
from services.dcut.local.dcut import LocalDcut
from services.dcut.local.messages import Candidate, Offer, StepLoad, Verified
from services.models.cache import cache_root
from services.models.source import resolve
from services.models.tokenizer import eos_ids, load_tokenizer
from services.target.config import EngineConfig
from services.target.model.loader import load_target
from services.target.step_table import step_table

_SEQUENCES = (1, 4, 16, 64)
_DRAFT = 7
_CONTEXT = 300.0
_WARM_UP = 30


@dataclass(frozen=True, slots=True)
class DecisionCost:
    """Means, in seconds: not every step asks anew."""

    ask_s: float
    keep_s: float
    learn_s: float
    step_s: float  # expected, without a draft: the shortest there is

    @property
    def share(self) -> float:
        """Of all decisions in the shortest step."""
        return (self.ask_s + self.keep_s + self.learn_s) / self.step_s


def measure(sequences: int, table: StepCosts | None, rounds: int) -> DecisionCost:
    """Rounds of one replica with so many sequences."""
    dcut = LocalDcut(LocalDcutConfig(), table)
    # The worst case: everybody is worth a draft, and the selection is never skipped.
    rng = random.Random(7)
    load = StepLoad(sequences, _CONTEXT, 0, 1 << 16)
    candidates = [Candidate(number, "mtp" if number % 2 else "dfly", False, _DRAFT) for number in range(sequences)]
    for number in range(sequences):
        dcut.open(number, "chat" if number % 3 else "code", is_greedy=bool(number % 2))
    for kind in ("mtp", "dfly"):
        dcut.observe_wait(DraftWait(kind, sequences, _DRAFT, 1e-3, 1e-3))
    times: list[tuple[float, float, float]] = []
    for _ in range(_WARM_UP + rounds):
        offers = [Offer(number, tuple(rng.uniform(0.2, 1.0) for _ in range(_DRAFT))) for number in range(sequences)]
        started = time.thread_time()
        dcut.ask(candidates, load)
        asked = time.thread_time()
        kept = dcut.keep(offers, load)
        selected = time.thread_time()
        dcut.observe_verified(
            [Verified(number, count, rng.randint(0, count)) for number, count in enumerate(kept) if count]
        )
        times.append((asked - started, selected - asked, time.thread_time() - selected))
    ask_s, keep_s, learn_s = (statistics.fmean(column) for column in zip(*times[_WARM_UP:], strict=True))
    return DecisionCost(ask_s, keep_s, learn_s, float(dcut.steps.seconds(sequences, _CONTEXT)))


def main(
    rounds: Annotated[int, typer.Option(min=5, help="Rounds of each size.")] = 300,
    threads: Annotated[int, typer.Option(min=1, help="OpenMP threads of the target whose steps are measured.")] = 2,
    profile: Annotated[bool, typer.Option(help="Measure the default model's step; otherwise assume a shape.")] = True,
) -> None:
    """Microseconds of each decision, and all of them as a share of the shortest step."""
    table = _default_table(threads) if profile else None
    shown = Table(box=None, header_style="bold")
    for name in ("sequences", "ask us", "keep us", "learn us", "step ms", "share"):
        shown.add_column(name, justify="right")
    for sequences in _SEQUENCES:
        cost = measure(sequences, table, rounds)
        micros = (f"{1e6 * seconds:.0f}" for seconds in (cost.ask_s, cost.keep_s, cost.learn_s))
        shown.add_row(str(sequences), *micros, f"{1e3 * cost.step_s:.1f}", f"{100 * cost.share:.2f}%")
    Console().print(shown)


def _default_table(threads: int) -> StepCosts | None:
    torch.set_num_threads(threads)
    folder = resolve("default").path
    config = EngineConfig(precision="bf16", max_sequences=64, threads=threads)
    ends = eos_ids(folder, load_tokenizer(folder))
    target = load_target(folder, ends, "bf16", torch.device("cpu"), config.max_step_rows, cache_root())
    return step_table(target, folder, config, cache_root())


if __name__ == "__main__":
    typer.run(main)
