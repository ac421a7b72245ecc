"""Round trip between a target's drafting desk and a drafter in its own process, on loopback.

python -m orchestration.bench.engine.round_trip

One sequence, one ask at a time, so nothing queues. A round is ask + wait + take, as
the engine does it; with the payload, every ask carries hidden states of 64 KB.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from orchestration.drafter_process import PAYLOAD_HIDDEN, running
from services.dcut.messages import Member
from services.requests.speculation import Speculation
from services.rpc.credential import Credential
from services.target.drafting.config import DraftingConfig
from services.target.drafting.desk import Desk
from services.target.drafting.interface import DraftingContext

_ROWS = 8  # 8 rows of 4096 bf16 values: 64 KB
_DRAFT = 4
_WARM_UP = 200
_TIMEOUT_S = 10.0


def measure(address: str, credential: Credential, kind: str, rounds: int, *, with_payload: bool) -> list[float]:
    """Milliseconds of every round. Raises RuntimeError when the drafter cannot be reached."""
    member = Member("drafter", "bench", address, kind, "", "", 0, 0, 0, 0, 0, "")
    config = DraftingConfig(kinds=(kind,), local_lookup=False, min_wait_ms=1000, max_wait_ms=1000)
    desk = Desk(config, 1 << 16, PAYLOAD_HIDDEN, "bench", lambda: (member,), credential)
    desk.start()
    try:
        tokens = [1, 2, 3, 4]
        desk.open(1, DraftingContext(1.0, 0, 1.0, 7, Speculation()), tokens)
        end = time.monotonic() + _TIMEOUT_S
        while desk.drafter_of(1) != kind:
            if time.monotonic() > end:
                raise RuntimeError(f"no drafter of kind {kind} at {address}")
            desk.features_wanted(1)
            desk.wait(0.05)
        features_RTD = torch.zeros(_ROWS, 1, PAYLOAD_HIDDEN, dtype=torch.bfloat16)
        if with_payload:
            desk.add_features(1, 0, features_RTD[: len(tokens) - 1])
        times = []
        for _ in range(_WARM_UP + rounds):
            first = len(tokens) - 1
            tokens.extend([1 + len(tokens) % 7] * _ROWS)
            started = time.perf_counter()
            if with_payload:
                desk.add_features(1, first, features_RTD)
            desk.ask([(1, _DRAFT)])
            while desk.is_pending(1):
                desk.wait(1.0)
            guess = desk.take(1)
            times.append((time.perf_counter() - started) * 1e3)
            if with_payload and guess is None:
                raise RuntimeError(f"a round brought no draft: {desk.counters}")
        return times[_WARM_UP:]
    finally:
        desk.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2000)
    rounds = parser.parse_args().rounds
    print(f"{'row':<28}{'p50 ms':>10}{'p99 ms':>10}")
    for name, kind, with_payload in (
        ("64 KB of hidden states", "payload", True),
        ("no payload (lookup)", "lookup", False),
    ):
        credential = Credential.random()
        with running(credential, *(["--payload"] if with_payload else [])) as address:
            times = measure(address, credential, kind, rounds, with_payload=with_payload)
        percentiles = statistics.quantiles(times, n=100)
        print(f"{name:<28}{statistics.median(times):>10.2f}{percentiles[98]:>10.2f}")


if __name__ == "__main__":
    main()
