"""A mixed load without end: every drafter, greedy and sampled, short and long, and clients that walk away."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from orchestration.bench.endpoints.client import Client, connect
from orchestration.bench.options import Arm
from orchestration.bench.prompts import Prompt

_DRAFTERS = ("auto", "auto", "auto", "mtp", "dfly", "lookup", "none")
_LENGTHS = (16, 64, 160)
_WALKS_AWAY = 0.05  # share of the clients that do
_PATIENCE_S = (0.05, 2.0)
_ERROR_PAUSE_S = 0.5


@dataclass(slots=True)
class Seen:
    """Since the start."""

    finished: int = 0
    abandoned: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    # Texts of greedy answers: the same question always has the same answer, whoever drafts.
    texts: dict[tuple[str, int], str] = field(default_factory=dict)
    same: int = 0
    other: int = 0

    def judge(self, prompt: str, length: int, text_hash: str) -> None:
        known = self.texts.setdefault((prompt, length), text_hash)
        self.same += known == text_hash
        self.other += known != text_hash


class MixedLoad:
    """`clients` at once, each asking again as soon as its answer has ended."""

    def __init__(self, address: str, prompts: Sequence[Prompt], clients: int, seed: int, timeout_s: float) -> None:
        self.seen = Seen()
        self._prompts = prompts
        self._num_clients = clients
        self._random = random.Random(seed)
        self._clients: list[tuple[Arm, Client]] = []
        for drafter in dict.fromkeys(_DRAFTERS):
            for length in _LENGTHS:
                for temperature in (0.0, 0.8):
                    arm = Arm(url=address, drafter=drafter, max_tokens=length, temperature=temperature, seed=None)
                    self._clients.append((arm, connect(arm, timeout_s)))

    async def run(self, seconds: float) -> None:
        """Raises EndpointError when nobody is there to begin with."""
        for _, client in self._clients:
            await client.describe()
        end = time.perf_counter() + seconds
        await asyncio.gather(*(self._ask_until(end) for _ in range(self._num_clients)))

    async def close(self) -> None:
        for _, client in self._clients:
            await client.close()

    async def _ask_until(self, end: float) -> None:
        while time.perf_counter() < end:
            drafter, length = self._random.choice(_DRAFTERS), self._random.choice(_LENGTHS)
            temperature = self._random.choice((0.0, 0.8))
            arm, client = next(
                (arm, client)
                for arm, client in self._clients
                if (arm.drafter, arm.max_tokens, arm.temperature) == (drafter, length, temperature)
            )
            await self._ask(arm, client, self._random.choice(self._prompts))

    async def _ask(self, arm: Arm, client: Client, prompt: Prompt) -> None:
        patience_s = self._random.uniform(*_PATIENCE_S) if self._random.random() < _WALKS_AWAY else None
        try:
            record = await asyncio.wait_for(client.run(prompt, time.perf_counter()), patience_s)
        except asyncio.TimeoutError:
            self.seen.abandoned += 1
            return
        if not record.is_ok:
            self.seen.errors[record.error] += 1
            await asyncio.sleep(_ERROR_PAUSE_S)  # whatever is wrong, asking faster does not help
            return
        self.seen.finished += 1
        if arm.temperature == 0:
            self.seen.judge(prompt.name, arm.max_tokens, record.text_hash)
