"""Runs a benchmark: every dataset under every load, on each arm in turn."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from orchestration.bench import paired
from orchestration.bench.endpoints.client import Client, EndpointError, Served, connect
from orchestration.bench.load import Load, put
from orchestration.bench.options import Arm
from orchestration.bench.prompts import Prompt, PromptSet, dataset, long_prompts
from orchestration.bench.record import Record
from orchestration.bench.report.figures import FIGURES
from orchestration.bench.result import Cell, MeasuredArm, Pairing, Ratio, Request, Result, Settings
from orchestration.bench.summary import Summary, summarise
from orchestration.bench.surroundings import this_machine, versions

_PROBE_CHARACTERS = 4000
_MAX_ARMS = 32


@dataclass(frozen=True, slots=True)
class Step:
    """What is being done; `total` requests in all, `done` of them ended."""

    text: str
    done: int
    total: int


OnStep = Callable[[Step], None]
OnRun = Callable[[str, Summary], None]  # the words that name a run, and what it gave


@dataclass(frozen=True, slots=True)
class _Side:
    """An arm with its client."""

    arm: Arm
    client: Client
    served: Served


async def run(
    arms: Sequence[Arm],
    settings: Settings,
    own_prompts: PromptSet | None = None,
    api_key: str | None = None,
    on_step: OnStep = lambda _: None,
    on_run: OnRun = lambda _, __: None,
) -> Result:
    """Measures one arm, or several in turns: A B C, C B A, B C A, ..., so that drift of the machine falls on all.

    The last arm is paired with each of the others.

    Raises EndpointError for an endpoint that is away or refuses the very first requests, and ValueError for settings
    that do not go together.
    """
    if not 1 <= len(arms) <= _MAX_ARMS or len({arm.name for arm in arms}) != len(arms):
        raise ValueError(
            f"arms: {[arm.name for arm in arms]} cannot be measured; at least 1 and at most {_MAX_ARMS} must have "
            "names of their own"
        )
    if len(arms) > 1 and settings.repeats < 2:
        raise ValueError(f"repeats: {settings.repeats} is out of range; pairs of arms need at least 2")
    date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    machine = this_machine()
    async with AsyncExitStack() as opened:
        sides = []
        for arm in arms:
            client = connect(arm, settings.timeout_s, api_key)
            opened.push_async_callback(client.close)
            sides.append(_Side(arm, client, await client.describe()))
        sets = [own_prompts] if own_prompts else [dataset(name) for name in settings.datasets]
        if settings.contexts:
            sets = await _of_lengths(arms[0], settings, api_key)
        cells, pairings = [], []
        for prompts in sets:
            for load in settings.loads:
                measured = _Cell(sides, settings, prompts, load, on_step, on_run)
                await measured.measure()
                cells += [measured.cell(index) for index in range(len(sides))]
                pairings += [measured.pairing(index) for index in range(len(sides) - 1)]
    return Result(
        date=date,
        machine=machine,
        versions=versions(),
        settings=settings,
        arms=tuple(MeasuredArm(arm=side.arm, model=side.served.model, facts=side.served.facts) for side in sides),
        sources={prompts.name: prompts.source for prompts in sets},
        cells=tuple(cells),
        pairings=tuple(pairings),
    )


async def _of_lengths(arm: Arm, settings: Settings, api_key: str | None) -> list[PromptSet]:
    """Prompts of each length, with the characters that a token of this model has in them."""
    probe = long_prompts(_PROBE_CHARACTERS, 1.0, 1).take(1, 0)[0]
    client = connect(arm.model_copy(update={"max_tokens": 1}), settings.timeout_s, api_key)
    try:
        await client.describe()
        record = await client.run(probe, 0.0)
    finally:
        await client.close()
    if not record.is_ok or not record.prompt_tokens:
        raise EndpointError(f"a prompt cannot be measured in tokens: {record.error_text or 'no usage is told'}")
    per_token = len(probe.text) / record.prompt_tokens
    count = max(_num_prompts(settings, load) for load in settings.loads)
    return [long_prompts(context, per_token, count) for context in settings.contexts]


def _num_prompts(settings: Settings, load: Load) -> int:
    return load.default_num_prompts if settings.num_prompts is None else settings.num_prompts


class _Cell:
    """Every arm on one dataset under one load."""

    def __init__(
        self,
        sides: Sequence[_Side],
        settings: Settings,
        prompts: PromptSet,
        load: Load,
        on_step: OnStep,
        on_run: OnRun,
    ) -> None:
        self._sides = sides
        self._settings = settings
        self._set = prompts
        self._load = load
        self._on_step = on_step
        self._on_run = on_run
        self._runs: list[list[list[Record]]] = [[] for _ in sides]

    async def measure(self) -> None:
        for index in range(len(self._sides)):
            await self._warm_up(index)
        for repeat in range(self._settings.repeats):
            for index in paired.order(repeat, len(self._sides)):
                await self._run(index, repeat)

    def cell(self, index: int) -> Cell:
        runs, limits = self._runs[index], self._settings.goodput_ms
        details = [
            Request.of(record, run, min(other.due for other in records))
            for run, records in enumerate(runs)
            for record in records
        ]
        return Cell(
            arm=self._sides[index].arm.name,
            dataset=self._set.name,
            load=self._load.label,
            total=summarise(runs, limits),
            runs=tuple(summarise([records], limits) for records in runs),
            requests=tuple(details) if self._settings.save_detailed else (),
        )

    def pairing(self, index: int) -> Pairing:
        """The last arm against that one."""
        first, second = self.cell(index), self.cell(len(self._sides) - 1)
        both = [
            (a, b)
            for a_run, b_run in zip(self._runs[index], self._runs[-1], strict=True)
            for a, b in zip(a_run, b_run, strict=True)
            if a.is_ok and b.is_ok
        ]
        return Pairing(
            first=first.arm,
            second=second.arm,
            dataset=first.dataset,
            load=first.load,
            ratios=ratios(first.runs, second.runs),
            same_texts=sum(a.text_hash == b.text_hash for a, b in both),
            texts=len(both),
        )

    async def _warm_up(self, index: int) -> None:
        side, count = self._sides[index], self._num_warmups
        if not count:
            return
        load = self._load
        if load.kind != "closed":
            load = Load(concurrency=min(count, load.concurrency or 4))
        records = await put(load, side.client, self._warm_up_prompts(count), 0, self._told(index, "warm-up", count))
        if not any(record.is_ok for record in records):
            first = records[0]
            raise EndpointError(
                f"every warm-up request of {side.arm.name} failed; the first: {first.error}: {first.error_text}"
            )

    async def _run(self, index: int, repeat: int) -> None:
        name = f"run {repeat + 1} of {self._settings.repeats}"
        prompts = self._prompts(_num_prompts(self._settings, self._load))
        # Both arms of a pair meet the same arrivals.
        seed = self._settings.seed + repeat
        told = self._told(index, name, len(prompts))
        records = await put(self._load, self._sides[index].client, prompts, seed, told)
        self._runs[index].append(records)
        self._on_run(self._words(index, name), summarise([records], self._settings.goodput_ms))

    @property
    def _num_warmups(self) -> int:
        if self._settings.num_warmups is not None:
            return self._settings.num_warmups
        if self._do_runs_repeat_prompts and not self._are_prompts_unique:
            # All prompts, so that no run finds more of them in a prefix cache than another.
            return _num_prompts(self._settings, self._load)
        return max(2, self._load.concurrency or 0)

    @property
    def _do_runs_repeat_prompts(self) -> bool:
        return len(self._sides) > 1 or self._settings.repeats > 1 or len(self._settings.loads) > 1

    @property
    def _are_prompts_unique(self) -> bool:
        # The cost of a context is that of computing it.
        return self._settings.unique_prompts or bool(self._settings.contexts)

    def _prompts(self, count: int) -> list[Prompt]:
        """The same for every run of the cell, but for marks."""
        return self._marked(self._set.take(count, self._settings.seed))

    def _warm_up_prompts(self, count: int) -> list[Prompt]:
        """Those that are measured where runs repeat them, else others as far as there are enough."""
        if self._do_runs_repeat_prompts:
            return self._prompts(count)
        measured = _num_prompts(self._settings, self._load)
        return self._marked(self._set.take(measured + count, self._settings.seed)[measured:])

    def _marked(self, prompts: list[Prompt]) -> list[Prompt]:
        if not self._are_prompts_unique:
            return prompts
        return [replace(prompt, text=f"[{secrets.token_hex(4)}] {prompt.text}") for prompt in prompts]

    def _words(self, index: int, name: str) -> str:
        arm = f"{self._sides[index].arm.name}, " if len(self._sides) > 1 else ""
        return f"{arm}{self._set.name}, {self._load.label}, {name}"

    def _told(self, index: int, name: str, total: int) -> Callable[[Record], None]:
        done = 0

        def on_record(_: Record) -> None:
            nonlocal done
            done += 1
            self._on_step(Step(self._words(index, name), done, total))

        return on_record


def ratios(first: Sequence[Summary], second: Sequence[Summary]) -> dict[str, Ratio]:
    """Second over first for every figure that at least two pairs of runs have on both sides, above 0."""
    found = {}
    for name, figure in FIGURES.items():
        pairs = [(figure.value(a), figure.value(b)) for a, b in zip(first, second, strict=True)]
        whole = [(a, b) for a, b in pairs if a and b]
        if len(whole) >= 2:
            told = paired.summarise([b for _, b in whole], [a for a, _ in whole])
            found[name] = Ratio(ratio=told.ratio, low=told.low, high=told.high, pairs=told.pairs)
    return found
