"""The only target is killed while it answers: the answers go on when another has come up, as if nothing had been."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from orchestration.cli.client import Client
from orchestration.cli.requests import Controls, chat_request
from protos import generation_pb2 as pb
from tests.e2e.prompts import CHAT, CODE
from tests.e2e.service import Service

CONTROLS = (
    (CODE, Controls(max_tokens=128, drafter="auto")),
    (CHAT, Controls(max_tokens=96, drafter="mtp", temperature=1.0, seed=11)),
    (CHAT, Controls(max_tokens=96, drafter="none", temperature=1.0, seed=12)),
)


def answer(
    service: Service, prompt: str, controls: Controls, begun: threading.Event | None = None
) -> tuple[list[int], str, pb.GenerateChunk]:
    tokens, text = [], ""
    with Client(service.grpc_address) as client:
        last = pb.GenerateChunk()
        for last in client.generate(chat_request([("user", prompt)], controls)):
            tokens += last.token_ids
            text += last.text
            if begun is not None and len(tokens) >= 4:
                begun.set()
    return tokens, text, last


def test_kill_the_target_while_it_answers(service: Service) -> None:
    quiet = [answer(service, *what) for what in CONTROLS]
    (target,) = service.members("target")
    begun = [threading.Event() for _ in CONTROLS]
    with ThreadPoolExecutor(len(CONTROLS)) as pool:
        running = [pool.submit(answer, service, *what, event) for what, event in zip(CONTROLS, begun, strict=True)]
        for event in begun:
            assert event.wait(60)
        if all(future.done() for future in running):
            pytest.fail("the kill comes too late to prove anything")
        os.kill(target["pid"], signal.SIGKILL)
        resumed = [future.result(timeout=300) for future in running]
    for (tokens, text, last), (expected, expected_text, end) in zip(resumed, quiet, strict=True):
        assert tokens == expected
        assert text == expected_text
        assert (last.finish_reason, last.stop_reason) == (end.finish_reason, end.stop_reason)
        assert last.usage.completion_tokens == end.usage.completion_tokens
        assert last.speculation.exactness == end.speculation.exactness  # the same machine: the same bits
    assert service.status()["gateway"]["resumes"] >= 1
