"""What a gateway counts, by both doors, against answers whose numbers the script knows."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import grpc.aio
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from protos import generation_pb2 as pb
from protos import target_pb2
from protos.generation_pb2_grpc import GenerationStub
from services.gateway.metrics import GatewayMetrics
from services.requests.task import Task
from tests.unit.gateway.conftest import Setup, until
from tests.unit.gateway.scripted import ScriptedTarget, endless, fail, finish, say

CHAT = Task("chat", 0.9)


async def shown(setup: Setup) -> dict[tuple[str, ...], float]:
    """Samples by name and label values."""
    async with httpx.AsyncClient(trust_env=False) as http:
        reply = await http.get(f"{setup.url}/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=")
    families = text_string_to_metric_families(reply.text)
    return {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}


def values(samples: dict[tuple[str, ...], float], name: str) -> dict[tuple[str, ...], float]:
    return {labels[1:]: value for labels, value in samples.items() if labels[0] == name}


async def stamped(
    request: target_pb2.TargetRequest, context: grpc.aio.ServicerContext
) -> AsyncIterator[pb.GenerateChunk]:
    yield pb.GenerateChunk(text="a", token_ids=[1], token_times=[100.0])
    yield pb.GenerateChunk(text="bcd", token_ids=[1, 1, 1], token_times=[100.3] * 3)
    yield pb.GenerateChunk(text="e", token_ids=[1], token_times=[100.35])
    yield finish(drafter="mtp+lookup")


async def test_answers_by_both_doors(setup: Setup) -> None:
    setup.target.script = stamped
    async with httpx.AsyncClient(trust_env=False) as http:
        for stream in (False, True):
            body = {"model": "tiny", "prompt": "hi", "max_tokens": 8, "stream": stream}
            assert (await http.post(f"{setup.url}/v1/completions", json=body)).status_code == 200
    request = pb.GenerateRequest(model="tiny", text="hi", sampling=pb.Sampling(max_tokens=8))
    assert [chunk async for chunk in GenerationStub(setup.channel).Generate(request)]
    samples = await shown(setup)
    assert values(samples, "draftfleet_requests_total") == {("finished",): 3}
    (choices,) = values(samples, "draftfleet_choices_total").items()
    assert choices[1] == 3
    assert {"stop", "mtp"} <= set(choices[0])
    assert sum(values(samples, "draftfleet_time_to_first_token_seconds_count").values()) == 3
    assert sum(values(samples, "draftfleet_request_seconds_count").values()) == 3
    # Of 0.3 s before three tokens each has 0.1; one more came after 0.05.
    assert sum(values(samples, "draftfleet_inter_token_latency_seconds_count").values()) == 3 * 4
    assert sum(values(samples, "draftfleet_inter_token_latency_seconds_sum").values()) == pytest.approx(3 * 0.35)
    buckets = samples["vllm:inter_token_latency_seconds_bucket", "0", "0.2", "tiny"]
    assert buckets == 3 * 4
    assert samples["vllm:request_success_total", "0", "stop", "tiny"] == 3


async def test_errors_told_to_clients(setup: Setup) -> None:
    async with httpx.AsyncClient(trust_env=False) as http:
        wrong = {"model": "tiny", "prompt": "hi", "max_tokens": 10**6}
        assert (await http.post(f"{setup.url}/v1/completions", json=wrong)).status_code == 400
        assert (await http.get(f"{setup.url}/nowhere")).status_code == 404
        assert (await http.get(f"{setup.url}/v1/completions")).status_code == 405
        setup.target.script = fail(grpc.StatusCode.INTERNAL, "broken", after=[pb.GenerateChunk(text="x")])
        asked = {"model": "tiny", "prompt": "hi", "max_tokens": 8, "stream": True}
        assert "unavailable" in (await http.post(f"{setup.url}/v1/completions", json=asked)).text
    with pytest.raises(grpc.aio.AioRpcError):
        await GenerationStub(setup.channel).GetModel(pb.GetModelRequest(model="other"))
    samples = await shown(setup)
    assert values(samples, "draftfleet_errors_total") == {
        ("http", "invalid"): 1,
        ("http", "unknown_path"): 1,
        ("http", "wrong_method"): 1,
        ("http", "unavailable"): 1,
        ("grpc", "unknown_model"): 1,
    }
    assert values(samples, "draftfleet_requests_total") == {("failed",): 1}
    assert samples["draftfleet_target_attempts_lost_total",] == 1


async def test_a_client_that_goes_away(setup: Setup) -> None:
    setup.target.script = endless
    call = GenerationStub(setup.channel).Generate(
        pb.GenerateRequest(model="tiny", text="hi", sampling=pb.Sampling(max_tokens=8))
    )
    await call.read()
    assert (await shown(setup))["draftfleet_requests_active",] == 1
    call.cancel()
    await until(lambda: setup.gateway.metrics.requests["cancelled"])
    await until(lambda: not setup.gateway.admission.active)
    assert setup.gateway.metrics.requests == {"cancelled": 1}


async def test_another_target_is_a_retry(setup: Setup) -> None:
    broken = ScriptedTarget(fail(grpc.StatusCode.UNAVAILABLE), "broken")
    await broken.start()
    setup.members.append(broken.member())
    setup.members[0] = setup.target.member(sessions=9)  # the broken one looks better
    setup.target.script = say("x")
    request = pb.GenerateRequest(model="tiny", text="hi", sampling=pb.Sampling(max_tokens=8))
    assert [chunk async for chunk in GenerationStub(setup.channel).Generate(request)]
    samples = await shown(setup)
    assert samples["draftfleet_request_retries_total",] == 1
    assert samples["draftfleet_target_attempts_lost_total",] == 1
    await broken.stop()


def test_a_stream_closed_after_the_last_chunk_is_a_finished_one() -> None:
    metrics = GatewayMetrics()

    def closed_after(*chunks: pb.GenerateChunk) -> None:
        with metrics.watching(CHAT, 2, 0.0) as watch:
            for chunk in chunks:
                watch.see(chunk)
            raise GeneratorExit

    with pytest.raises(GeneratorExit):
        closed_after(finish(0), finish(1, reason=pb.FINISH_REASON_LENGTH))
    with pytest.raises(GeneratorExit):
        closed_after(finish(0))
    assert metrics.requests == {"finished": 1, "cancelled": 1}
    assert metrics.choices == {("stop", "lookup", "chat"): 2, ("length", "lookup", "chat"): 1}


def test_several_tokens_in_the_first_step_share_its_time() -> None:
    metrics = GatewayMetrics()
    with metrics.watching(CHAT, 1, 0.0) as watch:
        watch.see(pb.GenerateChunk(token_times=[5.0, 5.0, 5.2]))
    assert metrics.inter_token.sums["chat",] == pytest.approx(0.2)
    assert sum(metrics.inter_token.counts["chat",]) == 2
