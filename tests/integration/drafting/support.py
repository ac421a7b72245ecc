"""A drafter server on a loop of its own, and the engine's side of a round."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from services.dcut.messages import Member
from services.drafters.config import DrafterConfig
from services.drafters.drafter import Drafter
from services.drafters.registry import kind_of
from services.drafters.server import DrafterServer
from services.requests.speculation import Speculation, as_drafter_choice
from services.target.drafting.config import DraftingConfig
from services.target.drafting.desk import Desk
from services.target.drafting.interface import DraftingContext, Guess
from services.target.drafting.loop import LoopThread
from tests.unit.drafters.support import HIDDEN

VOCABULARY = 1000
TIMEOUT_S = 20.0
TEXT = [1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4]  # goes on with 5, 6, 7, 8


def context(drafter: str = "auto", max_draft_tokens: int | None = None) -> DraftingContext:
    return DraftingContext(1.0, 0, 1.0, 42, Speculation(as_drafter_choice(drafter), max_draft_tokens))


def member(address: str, kind: str = "lookup", replica: str = "") -> Member:
    return Member("drafter", replica or address, address, kind, "", "", 0, 0, 0, 0, 0, "")


@functools.cache
def server_loop() -> LoopThread:
    return LoopThread("drafter-servers")


@contextmanager
def serving(config: DrafterConfig | None = None, drafter: Drafter | None = None) -> Iterator[DrafterServer]:
    config = config or DrafterConfig()
    thread = server_loop()

    async def start() -> DrafterServer:
        server = DrafterServer(config, drafter or kind_of(config).build(config), "drafter-1")
        await server.start("127.0.0.1")
        return server

    server = thread.run(start(), TIMEOUT_S)
    try:
        yield server
    finally:
        thread.run(server.stop(), TIMEOUT_S)


@contextmanager
def desk_to(
    *members: Member, view: Callable[[], tuple[Member, ...]] | None = None, replica: str = "target-1", **settings: Any
) -> Iterator[Desk]:
    """Waits long for drafts unless told otherwise: these tests are not about time."""
    defaults = {
        "kinds": tuple(dict.fromkeys(m.kind for m in members)) or ("lookup",),
        "local_lookup": False,
        "min_wait_ms": 5000,
        "max_wait_ms": 5000,
        "quiet_ms": 20000,
        "min_backoff_s": 0.02,
        "max_backoff_s": 0.2,
        "refresh_s": 0.01,
    }
    desk = Desk(
        DraftingConfig.model_validate(defaults | settings), VOCABULARY, HIDDEN, replica, view or (lambda: members)
    )
    desk.start()
    try:
        yield desk
    finally:
        desk.stop()


def until(condition: Callable[[], bool], what: str = "") -> None:
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < end, f"it never came to be: {what}"
        time.sleep(0.005)


def draft(desk: Desk, sequence: int, count: int = 4) -> Guess | None:
    """One ask, waited for as the engine does."""
    desk.ask([(sequence, count)])
    while desk.is_pending(sequence):
        desk.wait(0.05)
    return desk.take(sequence)


def first_draft(desk: Desk, sequence: int, count: int = 4) -> Guess:
    """Asks again and again until a draft comes: connecting takes a moment."""
    guesses: list[Guess] = []

    def came() -> bool:
        guess = draft(desk, sequence, count)
        if guess is not None:
            guesses.append(guess)
        return guess is not None

    until(came, f"a draft; {desk.counters}")
    return guesses[0]


def connect(desk: Desk, sequences: Sequence[int], kind: str = "lookup") -> None:
    """Until the desk would ask a drafter for each of them."""

    def connected() -> bool:
        for sequence in sequences:
            desk.features_wanted(sequence)
        return all(desk.drafter_of(sequence) == kind for sequence in sequences) and desk.counters.connects > 0

    until(connected, f"a connection; {desk.counters}")


class DrafterProcess:
    """A replica that can be killed."""

    def __init__(self, config: dict[str, Any] | None = None, port: int = 0, target: str = "default") -> None:
        command = [sys.executable, "-m", "orchestration.drafter_process", "--port", str(port)]
        command += ["--target", target]
        self.process = subprocess.Popen(
            [*command, "--config", json.dumps(config or {})], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        assert self.address, "the drafter process did not start"

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
