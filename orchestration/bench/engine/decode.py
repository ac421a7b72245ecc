"""Decoding speed of the engine on the default model, against transformers' generate and against itself.

python -m orchestration.bench.engine.decode
"""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import torch
import typer
from rich.console import Console
from transformers import AutoModelForCausalLM, PreTrainedModel

from orchestration.bench.paired import compare
from orchestration.demo import CODE
from services.models.cache import cache_root
from services.models.source import resolve
from services.models.tokenizer import chat_ids, eos_ids, load_tokenizer
from services.requests.sampling import SamplingParams
from services.requests.speculation import Speculation
from services.target.config import EngineConfig
from services.target.drafting.desk import Desk
from services.target.emission import Emission
from services.target.engine import Engine
from services.target.model.loader import load_target
from services.target.sequence import Request
from services.target.step_table import step_table

PROMPT = "Describe how a bicycle works, part by part."
_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class _Runner:
    engine: Engine

    def run(
        self, prompt: list[int], batch: int, num_tokens: int, drafter: Speculation, *, ignore_eos: bool = True
    ) -> float:
        """Decoded tokens a second, from the last first token to the end."""
        ended, lock = threading.Event(), threading.Lock()
        first: dict[int, float] = {}
        left, total = batch, 0

        def sink_of(index: int) -> Callable[[Emission], None]:
            def sink(emission: Emission) -> None:
                nonlocal left, total
                with lock:
                    if emission.tokens:
                        first.setdefault(index, time.perf_counter())
                    if len(first) == batch:
                        total += len(emission.tokens)
                    if emission.finish is not None:
                        left -= 1
                        if left == 0:
                            ended.set()

            return sink

        sampling = SamplingParams(max_tokens=num_tokens, temperature=0.0, seed=0, ignore_eos=ignore_eos)
        for index in range(batch):
            request_id = f"bench-{time.monotonic_ns()}-{index}"
            request = Request(request_id, tuple(prompt), sampling, drafter, sink_of(index))
            self.engine.submit(request)
        if not ended.wait(_TIMEOUT_S):
            raise TimeoutError("the engine does not finish")
        return (total - batch) / (time.perf_counter() - max(first.values()))


def _generate(model: PreTrainedModel, prompt: list[int], num_tokens: int) -> float:
    """Decoded tokens a second of transformers, the prefill taken off."""
    ids = torch.tensor([prompt])

    def timed(count: int) -> float:
        start = time.perf_counter()
        model.generate(  # type: ignore[operator]
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            min_new_tokens=count,
            max_new_tokens=count,
        )
        return time.perf_counter() - start

    return (num_tokens - 1) / (timed(num_tokens) - timed(1))


def main(
    threads: Annotated[int, typer.Option(min=1, help="OpenMP threads of both sides.")] = 2,
    tokens: Annotated[int, typer.Option(min=8, help="Tokens of each run.")] = 64,
    pairs: Annotated[int, typer.Option(min=2, help="Interleaved pairs of each comparison.")] = 6,
) -> None:
    """Ratios of decoded tokens a second, each from interleaved pairs with its 95% interval."""
    console = Console()
    torch.set_num_threads(threads)
    folder = resolve("default").path
    tokenizer = load_tokenizer(folder)
    target = load_target(folder, eos_ids(folder, tokenizer), "bf16", torch.device("cpu"), 256, cache_root())
    config = EngineConfig(precision="bf16", prefix_cache=False)
    desk = Desk(config.drafting, target.spec.vocabulary, target.spec.hidden, "bench", lambda: ())
    desk.start()
    engine = Engine(target, tokenizer, config, desk, step_table(target, folder, config, cache_root()))
    engine.start()
    runner = _Runner(engine)
    rival = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    prompt = chat_ids(tokenizer, [{"role": "user", "content": PROMPT}])
    repeat = chat_ids(tokenizer, [{"role": "user", "content": CODE.text}])
    none, lookup = Speculation("none"), Speculation("lookup")

    def plain(batch: int) -> Callable[[], float]:
        return lambda: runner.run(prompt, batch, tokens, none)

    console.print(f"{target.verdict.exactness} ({target.verdict.reason}), {threads} threads, {tokens} tokens a run")
    plain(16)()
    console.print(
        f"plain, batch 1, over generate: {compare(plain(1), lambda: _generate(rival, prompt, tokens), pairs)}"
    )
    for batch in (8, 16):
        console.print(f"plain, batch {batch}, over batch 1: {compare(plain(batch), plain(1), pairs)}")
    arms = [
        lambda speculation=arm: runner.run(repeat, 1, CODE.max_tokens, speculation, ignore_eos=False)
        for arm in (lookup, none)
    ]
    console.print(f"lookup over plain, repeated code: {compare(arms[0], arms[1], pairs)}")
    engine.stop()
    desk.stop()
    console.print(
        f"peak resident memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB, rival included"
    )


if __name__ == "__main__":
    typer.run(main)
