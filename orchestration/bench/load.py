"""Puts load on an endpoint: closed loop (a number of clients) or open loop (arrivals that wait for nobody)."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_serializer, model_validator

from orchestration.bench.arrivals import poisson, read_trace
from orchestration.bench.endpoints.client import Client
from orchestration.bench.prompts import Prompt
from orchestration.bench.record import Record

_OPEN_SECONDS = 60  # of arrivals, where no number of prompts is given
_ROUNDS = 4  # requests of each client of a closed loop, where no number of prompts is given
_FEWEST = 16

OnRecord = Callable[[Record], None]


class Load(BaseModel):
    """How requests come: `closed` keeps `concurrency` of them running, `poisson` and `trace` send by the clock.

    With a concurrency, an open loop holds back what is due until a place is free, and the wait counts as latency.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    kind: Literal["closed", "poisson", "trace"] = "closed"
    concurrency: int | None = Field(None, ge=1, le=4096)
    request_rate: float | None = Field(None, gt=0, description="A second; inf sends all at once.")
    burstiness: float = Field(1.0, gt=0, description="Shape of the gamma distribution of gaps; 1 is Poisson.")
    trace: Path | None = Field(None, description="File of arrivals.")
    trace_scale: float = Field(1.0, gt=0, description="Multiplies the times of a trace.")

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> Load:
        needed = {"closed": self.concurrency, "poisson": self.request_rate, "trace": self.trace}[self.kind]
        if needed is None:
            raise ValueError(f"a {self.kind} load needs its concurrency, request_rate or trace")
        return self

    @field_serializer("trace")
    def _without_folders(self, trace: Path | None) -> str | None:
        return None if trace is None else trace.name

    @property
    def label(self) -> str:
        held = f", at most {self.concurrency}" if self.concurrency else ""
        if self.kind == "poisson":
            return f"{self.request_rate:g}/s{held}"
        if self.kind == "trace":
            assert self.trace is not None
            scale = "" if self.trace_scale == 1 else f" x{self.trace_scale:g}"
            return f"{self.trace.name}{scale}{held}"
        return f"{self.concurrency} at once"

    @property
    def default_num_prompts(self) -> int:
        """Enough to hold the load for a while. Raises ValueError for a trace that cannot be read."""
        if self.kind == "trace":
            assert self.trace is not None
            return len(read_trace(self.trace))
        if self.kind == "closed":
            assert self.concurrency is not None
            return max(_FEWEST, _ROUNDS * self.concurrency)
        assert self.request_rate is not None
        return _FEWEST if math.isinf(self.request_rate) else max(_FEWEST, math.ceil(self.request_rate * _OPEN_SECONDS))

    def arrivals(self, count: int, seed: int) -> tuple[float, ...]:
        """Of an open loop. Raises ValueError for a trace with fewer arrivals."""
        if self.kind == "poisson":
            assert self.request_rate is not None
            return poisson(self.request_rate, count, seed, self.burstiness)
        assert self.kind == "trace"
        assert self.trace is not None
        times = read_trace(self.trace, self.trace_scale)
        if len(times) < count:
            raise ValueError(f"num_prompts: {count} is out of range; {self.trace} has {len(times)} arrivals")
        return times[:count]


async def put(load: Load, client: Client, prompts: Sequence[Prompt], seed: int, on_record: OnRecord) -> list[Record]:
    """Sends every prompt once and waits for all answers. Records come in the order of the prompts."""
    if load.kind == "closed":
        assert load.concurrency is not None
        return await closed(client, prompts, load.concurrency, on_record)
    return await opened(client, prompts, load.arrivals(len(prompts), seed), load.concurrency, on_record)


async def closed(client: Client, prompts: Sequence[Prompt], concurrency: int, on_record: OnRecord) -> list[Record]:
    """`concurrency` clients, each of which asks again as soon as its answer ended."""
    left = iter(enumerate(prompts))
    records: dict[int, Record] = {}

    async def ask_on() -> None:
        for index, prompt in left:
            records[index] = await client.run(prompt, time.perf_counter())
            on_record(records[index])

    await _all(ask_on() for _ in range(min(concurrency, len(prompts))))
    return [records[index] for index in range(len(prompts))]


async def opened(
    client: Client,
    prompts: Sequence[Prompt],
    arrivals: Sequence[float],
    concurrency: int | None,
    on_record: OnRecord,
) -> list[Record]:
    """Each prompt at its arrival, in seconds from now."""
    start = time.perf_counter()
    places = asyncio.Semaphore(concurrency) if concurrency else nullcontext()

    async def ask(prompt: Prompt, arrival: float) -> Record:
        await asyncio.sleep(start + arrival - time.perf_counter())
        async with places:
            record = await client.run(prompt, start + arrival)
        on_record(record)
        return record

    return await _all(ask(prompt, arrival) for prompt, arrival in zip(prompts, arrivals, strict=True))


async def _all(work: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
    """What each returned; the first exception ends all."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
