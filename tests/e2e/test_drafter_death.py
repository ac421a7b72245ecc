"""A drafter that is killed in the middle of answers costs nothing but speed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from orchestration.cli.client import Client
from orchestration.cli.requests import Controls, chat_request
from protos import generation_pb2 as pb
from tests.e2e.prompts import CHAT, CODE
from tests.e2e.service import Service

RETURN_TIMEOUT_S = 90.0
PROMPTS = (CODE, CHAT)
KINDS = ("lookup", "mtp", "dfly")


def answer(service: Service, prompt: str, drafter: str, started: threading.Event | None = None) -> list[int]:
    tokens: list[int] = []
    request = chat_request([("user", prompt)], Controls(max_tokens=128, drafter=drafter))
    with Client(service.grpc_address) as client:
        last = pb.GenerateChunk()
        for last in client.generate(request):
            tokens.extend(last.token_ids)
            if started is not None and len(tokens) >= 4:
                started.set()
    assert last.finish_reason in (pb.FINISH_REASON_STOP, pb.FINISH_REASON_LENGTH)
    return tokens


def drafter_with_sessions(service: Service, kind: str, gone: int) -> Iterator[bool]:
    """Whether another process of the kind than `gone` holds sequences, asked again and again."""
    deadline = time.monotonic() + RETURN_TIMEOUT_S
    while time.monotonic() < deadline:
        yield any(member["pid"] != gone and member["sessions"] > 0 for member in drafters(service, kind))
        time.sleep(0.1)


def drafters(service: Service, kind: str) -> list[dict[str, Any]]:
    return [member for member in service.members("drafter") if member["kind"] == kind]


def test_kill_every_drafter_while_streaming(service: Service) -> None:
    """Two answers with each kind, and all drafters die together; then each is replaced and taken up again."""
    plain = [answer(service, prompt, "none") for prompt in PROMPTS]
    victims = {kind: drafter["pid"] for kind in KINDS for drafter in drafters(service, kind)}
    assert len(victims) == len(KINDS)
    asked = [(kind, prompt, threading.Event()) for kind in KINDS for prompt in PROMPTS]
    with ThreadPoolExecutor(len(asked)) as pool:
        running = [pool.submit(answer, service, prompt, kind, started) for kind, prompt, started in asked]
        for _, _, started in asked:
            assert started.wait(60)
        assert not all(future.done() for future in running), "the kill comes too late to prove anything"
        for pid in victims.values():
            os.kill(pid, signal.SIGKILL)
        drafted = [future.result(timeout=300) for future in running]
    assert drafted == plain * len(KINDS)

    # New processes take their places, and sequences go to them without anyone's help.
    stop = threading.Event()

    def keep_asking(kind: str) -> None:
        while not stop.is_set():
            assert answer(service, CODE, kind) == plain[0]

    with ThreadPoolExecutor(len(KINDS)) as pool:
        asking = [pool.submit(keep_asking, kind) for kind in KINDS]
        try:
            for kind, pid in victims.items():
                assert any(drafter_with_sessions(service, kind, pid)), f"no new {kind} drafter took sequences"
        finally:
            stop.set()
        for future in asking:
            future.result(timeout=300)


@pytest.mark.parametrize("deployment", ["Dcut", "Router"])
def test_kill_what_decides_while_streaming(service: Service, deployment: str) -> None:
    """Both are off the token path: requests under way do not notice, nor do those that come before a new one is up."""
    plain = answer(service, CODE, "none")
    before = {(member["role"], member["pid"]) for member in service.status()["members"] if member["role"] != "router"}
    (victim,) = [process for process in service.processes() if process.name().endswith(f"draftfleet:{deployment}")]
    started = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(answer, service, CODE, "auto", started)
        assert started.wait(60)
        victim.kill()
        assert answer(service, CODE, "auto") == plain
        assert running.result(timeout=120) == plain
    after = {(member["role"], member["pid"]) for member in service.status()["members"]}
    assert before <= after
    assert answer(service, CODE, "auto") == plain


def test_a_new_actor_knows_what_the_old_one_knew(service: Service) -> None:
    """Targets tell totals, so what the fleet has learned lives in all of them."""
    for _ in range(2):
        answer(service, CODE, "mtp")
    deadline = time.monotonic() + RETURN_TIMEOUT_S
    while not (known := learned(service).get("mtp", 0)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert known > 0
    (victim,) = [process for process in service.processes() if process.name().endswith("draftfleet:Dcut")]
    version = service.status()["fleet"]["version"]
    victim.kill()
    while service.status()["fleet"]["version"] == version and time.monotonic() < deadline:
        time.sleep(0.2)
    while learned(service).get("mtp", 0) < 0.9 * known and time.monotonic() < deadline:
        time.sleep(0.2)
    assert learned(service)["mtp"] >= 0.9 * known


def learned(service: Service) -> dict[str, float]:
    """Rounds on record, by drafter kind."""
    rounds: dict[str, float] = {}
    for entry in service.status()["fleet"]["guidance"]:
        rounds[entry["kind"]] = rounds.get(entry["kind"], 0.0) + entry["rounds"]
    return rounds
