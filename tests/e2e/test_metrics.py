"""The fleet's totals of the real service: the answers' own numbers, and never less, whoever is killed."""

from __future__ import annotations

import os
import re
import signal
import time

import httpx

from orchestration.cli.client import Client
from orchestration.cli.requests import Controls, chat_request
from protos import generation_pb2 as pb
from tests.e2e.prompts import CHAT, CODE
from tests.e2e.service import Service
from tests.metric_samples import Samples, fallen, parsed, total

RETURN_TIMEOUT_S = 90.0


def look(service: Service) -> Samples:
    reply = httpx.get(f"{service.http_url}/metrics", timeout=30, trust_env=False)
    reply.raise_for_status()
    return parsed(reply.text)


def at_rest(service: Service) -> Samples:
    """A new actor may still be taking over what one that was killed before has left."""
    deadline = time.monotonic() + RETURN_TIMEOUT_S
    before = look(service)
    while True:
        assert time.monotonic() < deadline, "the totals do not come to rest"
        time.sleep(3)
        now = look(service)
        names = ("draftfleet_choices_total", "draftfleet_generated_tokens_total")
        if all(total(now, name) == total(before, name) for name in names):
            return now
        before = now


def answers(service: Service) -> list[pb.GenerateChunk]:
    """The last chunks."""
    last = []
    with Client(service.grpc_address) as client:
        for prompt, drafter in ((CODE, "auto"), (CHAT, "mtp"), (CODE, "lookup"), (CHAT, "none")):
            request = chat_request([("user", prompt)], Controls(max_tokens=48, drafter=drafter))
            last.append(list(client.generate(request))[-1])
    return last


def grown(service: Service, before: Samples, last: list[pb.GenerateChunk]) -> Samples:
    """Checks that the totals have grown by what the answers told, and that none fell."""
    now = look(service)
    assert fallen(before, now) == []
    stats = [chunk.speculation for chunk in last]
    for name, told in (
        ("vllm:spec_decode_num_drafts_total", sum(s.num_drafts for s in stats)),
        ("vllm:spec_decode_num_draft_tokens_total", sum(s.num_draft_tokens for s in stats)),
        ("vllm:spec_decode_num_accepted_tokens_total", sum(s.num_accepted_tokens for s in stats)),
        ("vllm:spec_decode_num_accepted_tokens_per_pos_total", sum(s.num_accepted_tokens for s in stats)),
        ("draftfleet_decode_rounds_total", sum(s.num_rounds for s in stats)),
        ("draftfleet_generated_tokens_total", sum(chunk.usage.completion_tokens for chunk in last)),
        ("draftfleet_choices_total", len(last)),
    ):
        assert total(now, name) - total(before, name) == told, name
    return now


def test_totals_are_the_answers_and_outlive_replicas(service: Service) -> None:
    before = at_rest(service)
    assert total(before, "draftfleet_replicas", role="drafter") == 3
    before = grown(service, before, answers(service))

    (drafter,) = [member for member in service.members("drafter") if member["kind"] == "lookup"]
    silent = total(before, "draftfleet_replicas_left_total", role="drafter", how="silent")
    os.kill(drafter["pid"], signal.SIGKILL)
    before = grown(service, before, answers(service))
    deadline = time.monotonic() + RETURN_TIMEOUT_S
    while drafter["pid"] in {member["pid"] for member in service.members("drafter")}:
        assert time.monotonic() < deadline, "the dead drafter is still in the fleet"
        time.sleep(0.1)
    before = grown(service, before, answers(service))
    assert total(before, "draftfleet_replicas_left_total", role="drafter", how="silent") == silent + 1

    (actor,) = [process for process in service.processes() if process.name().endswith("draftfleet:Dcut")]
    actor.kill()
    last = answers(service)
    deadline = time.monotonic() + RETURN_TIMEOUT_S
    while total(now := look(service), "draftfleet_choices_total") < total(before, "draftfleet_choices_total") + 4:
        assert fallen(before, now) == []
        assert time.monotonic() < deadline, "the new actor's totals do not arrive"
        time.sleep(0.1)
    grown(service, before, last)  # all that the old actor had was shown, and so handed on


def test_the_command_shows_them(service: Service) -> None:
    shown = service.cli("metrics", "--url", service.http_url)
    assert re.search(r"^draftfleet_replicas +.*role=gateway.* 1$", shown.stdout, re.MULTILINE), shown.stdout
    names = service.cli("metrics", "--names")
    assert "draftfleet_drafts_total" in names.stdout
