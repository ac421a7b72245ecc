"""The short form of the soak: the whole path under its mixed load for two seconds."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from orchestration.bench.prompts import Prompt
from orchestration.bench.soak.load import MixedLoad
from orchestration.bench.soak.observation import Observer, between
from orchestration.bench.soak.report import report
from tests.integration.gateway.conftest import running
from tests.unit.gateway.conftest import until

PROMPTS = [Prompt(f"p{number}", f"{number} one two three four one two three") for number in range(3)]
SECONDS = 2.0


async def test_a_mixed_load_leaves_nothing_behind(folder: Path) -> None:
    async with running(folder) as service:
        load, observer = MixedLoad(f"grpc://{service.grpc_address}", PROMPTS, 4, 0, 60.0), Observer(service.url)
        before, started = await observer.look(), time.perf_counter()
        await asyncio.wait_for(load.run(SECONDS), 120)
        await until(lambda: not (service.gateway.admission.active or service.drafter.num_sessions))
        after, ended = await observer.look(), time.perf_counter()
        await load.close()
        await observer.close()
        point = between(before, after, ended - started, ended - started)
        result = report([point], load.seen, is_bitwise=after.is_bitwise)
        assert load.seen.finished > 0
        assert result.is_good, load.seen  # one point has no trend; errors and texts count all the same
        assert after.totals["draftfleet_requests_active"] == after.totals["draftfleet_sequences_running"] == 0
        assert point.figures["accepted length"] is not None
        assert point.figures["accepted length"] >= 1
