"""Who is asked when, with a client that answers when the test says so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestration.bench.endpoints.client import Served
from orchestration.bench.load import Load, closed, opened, put
from orchestration.bench.prompts import Prompt
from orchestration.bench.record import Record

PROMPTS = [Prompt(f"p/{index}", "hi") for index in range(7)]


class HeldClient:
    """Answers nothing until it is released."""

    def __init__(self) -> None:
        self.running: dict[str, asyncio.Event] = {}
        self.most = 0
        self.asked: list[str] = []

    async def describe(self) -> Served:
        return Served("held", {})

    async def run(self, prompt: Prompt, due: float) -> Record:
        sent = time.perf_counter()
        self.asked.append(prompt.name)
        self.running[prompt.name] = asyncio.Event()
        self.most = max(self.most, len(self.running))
        try:
            await self.running[prompt.name].wait()
        finally:
            del self.running[prompt.name]
        return Record(prompt.name, due, sent, time.perf_counter())

    async def close(self) -> None: ...


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_closed_loop_keeps_its_number_running() -> None:
    client, told = HeldClient(), []
    load = asyncio.ensure_future(closed(client, PROMPTS, 3, told.append))
    for ended in range(len(PROMPTS)):
        await settled()
        assert len(client.running) == min(3, len(PROMPTS) - ended)
        newest = list(client.running)[-1]  # answers may overtake each other
        client.running[newest].set()
    records = await load
    assert [record.prompt for record in records] == [prompt.name for prompt in PROMPTS]
    assert client.most == 3
    assert client.asked == [prompt.name for prompt in PROMPTS]
    assert len(told) == len(PROMPTS)


async def test_an_open_loop_waits_for_nobody() -> None:
    client = HeldClient()
    load = asyncio.ensure_future(opened(client, PROMPTS, [0.0] * len(PROMPTS), None, lambda _: None))
    await settled()
    assert len(client.running) == len(PROMPTS)
    for event in list(client.running.values()):
        event.set()
    await load


async def test_a_bounded_open_loop_counts_the_wait_as_latency() -> None:
    client = HeldClient()
    load = asyncio.ensure_future(opened(client, PROMPTS[:2], [0.0, 0.0], 1, lambda _: None))
    await settled()
    assert client.asked == ["p/0"]
    await asyncio.sleep(0.02)
    client.running["p/0"].set()
    await settled()
    client.running["p/1"].set()
    first, second = await load
    assert first.due == second.due
    assert second.sent - second.due >= 0.02


async def test_requests_are_due_at_their_arrivals() -> None:
    class Ready(HeldClient):
        async def run(self, prompt: Prompt, due: float) -> Record:
            return Record(prompt.name, due, time.perf_counter(), time.perf_counter())

    records = await opened(Ready(), PROMPTS[:3], [0.0, 0.01, 0.02], None, lambda _: None)
    assert [record.due - records[0].due for record in records] == pytest.approx([0.0, 0.01, 0.02])
    assert all(record.sent >= record.due for record in records)


async def test_an_unforeseen_failure_ends_the_load_and_leaves_nothing_running() -> None:
    class Broken(HeldClient):
        async def run(self, prompt: Prompt, due: float) -> Record:
            if prompt.name == "p/2":
                raise RuntimeError("broken")
            return await super().run(prompt, due)

    client = Broken()
    with pytest.raises(RuntimeError, match="broken"):
        await put(Load(concurrency=3), client, PROMPTS, 0, lambda _: None)
    assert not client.running


def loads(tmp_path: Path) -> Iterator[tuple[Load, str, int]]:
    trace = tmp_path / "rush.txt"
    trace.write_text("0\n1\n2\n")
    yield Load(concurrency=2), "2 at once", 16
    yield Load(concurrency=64), "64 at once", 256
    yield Load(kind="poisson", request_rate=0.5), "0.5/s", 30
    yield Load(kind="poisson", request_rate=float("inf"), concurrency=4), "inf/s, at most 4", 16
    yield Load(kind="trace", trace=trace, trace_scale=2.0), "rush.txt x2", 3


def test_loads_name_themselves_and_say_how_long_they_are_held(tmp_path: Path) -> None:
    for load, label, count in loads(tmp_path):
        assert (load.label, load.default_num_prompts) == (label, count)


def test_loads_survive_their_json_without_folders(tmp_path: Path) -> None:
    for load, label, _ in loads(tmp_path):
        text = load.model_dump_json()
        assert str(tmp_path) not in text
        assert Load.model_validate_json(text).label == label


@pytest.mark.parametrize("kind", ["closed", "poisson", "trace"])
def test_a_load_needs_what_makes_it(kind: str) -> None:
    with pytest.raises(ValueError, match=f"a {kind} load needs"):
        Load.model_validate({"kind": kind})


def test_a_trace_has_to_be_long_enough(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trace.write_text("0\n1\n")
    with pytest.raises(ValueError, match="num_prompts: 3 is out of range"):
        Load(kind="trace", trace=trace).arrivals(3, 0)
