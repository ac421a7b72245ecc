"""Holds a mixed load on a running service and tells whether it stays as it is.

python -m orchestration.bench.soak --minutes 30 -o soak.json

The service must run on this machine for memory and descriptors to be seen. Hold it for long enough: memory rises
until the KV cache has been filled once. Exit status 1: something drifted, failed, or a greedy text changed.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from orchestration.bench.endpoints.client import EndpointError
from orchestration.bench.prompts import dataset
from orchestration.bench.soak.load import MixedLoad
from orchestration.bench.soak.observation import Observer, Point, between
from orchestration.bench.soak.report import Report, lines, report, save_json, save_png

_NUM_PROMPTS = 30
_TIMEOUT_S = 600.0

app = typer.Typer(add_completion=False)


@app.command()
def main(
    minutes: Annotated[float, typer.Option(min=0.1, max=100_000, help="How long the load is held.")] = 10.0,
    every: Annotated[float, typer.Option(min=1, max=3600, help="Seconds between two looks.")] = 10.0,
    clients: Annotated[int, typer.Option(min=1, max=1024, help="Requests at a time.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Of the order of requests.")] = 0,
    url: Annotated[str, typer.Option(help="The service's HTTP API.")] = "http://127.0.0.1:8000",
    address: Annotated[str, typer.Option(help="Its gRPC front door.")] = "127.0.0.1:9000",
    out: Annotated[Path, typer.Option("-o", "--out", help="Result as JSON; a PNG beside it.")] = Path("soak.json"),
) -> None:
    console = Console(highlight=False, soft_wrap=True)
    prompts = dataset("mixed").take(_NUM_PROMPTS, seed)
    load = MixedLoad(f"grpc://{address}", prompts, clients, seed, _TIMEOUT_S)
    try:
        result = asyncio.run(_soak(load, url, 60 * minutes, every, console))
    except EndpointError as error:
        console.print(f"[bold red]error:[/] {error}")
        raise typer.Exit(2) from error
    save_json(result, out)
    try:
        save_png(result, out.with_suffix(".png"))
    except ImportError:
        console.print("no picture: matplotlib is not installed (pip install matplotlib)")
    for line in lines(result):
        console.print(line)
    raise typer.Exit(0 if result.is_good else 1)


async def _soak(load: MixedLoad, url: str, seconds: float, every_s: float, console: Console) -> Report:
    observer, points, start = Observer(url), list[Point](), time.perf_counter()
    running = asyncio.create_task(load.run(seconds))
    try:
        before, before_at = await observer.look(), time.perf_counter()
        while not running.done():
            await asyncio.wait([running], timeout=every_s)
            after, at = await observer.look(), time.perf_counter()
            if at - start <= seconds or not points:  # while the last answers end, the load is another
                points.append(between(before, after, at - before_at, at - start))
            before, before_at = after, at
            console.print(f"{at - start:6.0f} s  {_shown(points[-1])}")
        await running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await load.close()
        await observer.close()
    return report(points, load.seen, is_bitwise=before.is_bitwise)


def _shown(point: Point) -> str:
    names = ("tokens a second", "accepted length", "first token, s")
    told = ((name, point.figures.get(name)) for name in names)
    return ", ".join(f"{name} {value:.3g}" for name, value in told if value is not None)


if __name__ == "__main__":
    app()
