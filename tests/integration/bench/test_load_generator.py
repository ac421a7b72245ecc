"""The load generator against real servers on this machine that say what the test knows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from orchestration.bench.endpoints.client import EndpointError, connect
from orchestration.bench.load import Load
from orchestration.bench.options import Arm, build_arm
from orchestration.bench.prompts import Prompt, PromptSet
from orchestration.bench.record import Record
from orchestration.bench.result import Settings, load_result
from orchestration.bench.runner import run
from orchestration.ports import free_ports
from tests.integration.bench.servers import NUM_TOKENS, TEXTS, GrpcDouble, HttpDoubles, serving_grpc, serving_http

GOOD = PromptSet("mine", "the test", (tuple(Prompt(f"mine/{index}", f"say {index}") for index in range(6)),))


@pytest.fixture
def doubles() -> HttpDoubles:
    return HttpDoubles()


@pytest.fixture
def url(doubles: HttpDoubles) -> Iterator[str]:
    with serving_http(doubles) as served:
        yield served


async def ask(arm: Arm, text: str, timeout_s: float = 20.0, api_key: str | None = None) -> Record:
    client = connect(arm, timeout_s, api_key)
    try:
        await client.describe()
        return await client.run(Prompt("p/0", text), 0.0)
    finally:
        await client.close()


def check_shape(record: Record) -> None:
    assert (record.error, record.finish) == ("", "length")
    assert len(record.burst_times) == len(TEXTS)
    assert record.num_tokens == NUM_TOKENS
    assert set(record.token_times) == set(record.burst_times)
    assert all(a <= b for a, b in pairwise((record.sent, *record.token_times, record.ended)))
    assert record.burst_times[0] < record.burst_times[1] < record.burst_times[2]
    assert record.prompt_tokens == 9


@pytest.mark.parametrize("api", ["chat", "completions"])
async def test_http_streams_are_taken_apart(url: str, doubles: HttpDoubles, api: str) -> None:
    arm = build_arm({"url": url, "api": api, "max_tokens": 5, "ignore_eos": True, "drafter": "none"})
    record = await ask(arm, "say", api_key="open sesame")
    check_shape(record)
    (body,), (headers,) = doubles.bodies, doubles.headers
    assert headers["authorization"] == "Bearer open sesame"
    assert (body["model"], body["max_tokens"], body["stream"]) == ("double", 5, True)
    assert (body["ignore_eos"], body["draftfleet"]) == (True, {"drafter": "none"})
    assert record.speculation is None


async def test_strict_servers_are_sent_nothing_that_was_not_asked_for(url: str, doubles: HttpDoubles) -> None:
    await ask(build_arm({"url": url, "seed": None}), "say")
    common = {"model", "messages", "max_tokens", "temperature", "stream", "stream_options"}
    assert doubles.bodies[0].keys() == common


@pytest.mark.parametrize(
    ("prompt", "kind", "told"),
    [
        ("<refuse>", "HTTP 429", "too many"),
        ("<cut>", "cut off", "ended before"),
        ("<fail>", "stream internal_error", "broken"),
        ("<hang>", "timeout", ""),
    ],
)
async def test_http_faults_are_errors_of_their_kind(url: str, prompt: str, kind: str, told: str) -> None:
    record = await ask(build_arm({"url": url}), prompt, timeout_s=1.0 if prompt == "<hang>" else 20.0)
    assert record.error == kind
    assert told in record.error_text


async def test_grpc_streams_are_taken_apart() -> None:
    double = GrpcDouble()
    async with serving_grpc(double) as url:
        arm = build_arm({"url": url, "max_tokens": 5, "seed": 7, "drafter": "lookup", "max_draft_tokens": 2})
        record = await ask(arm, "say")
        check_shape(record)
        assert record.token_times[1] == record.token_times[2]
        assert len(record.delays) == NUM_TOKENS
        assert record.cached_prompt_tokens == 3
        assert record.speculation is not None
        assert (record.speculation.num_rounds, record.speculation.num_round_tokens) == (2, 3.0)
        (request,) = double.requests
        assert (request.sampling.max_tokens, request.sampling.seed) == (5, 7)
        assert (request.speculation.drafter, request.speculation.max_draft_tokens) == ("lookup", 2)
        refused, cut = await ask(arm, "<refuse>"), await ask(arm, "<cut>")
    assert (refused.error, refused.error_text) == ("gRPC RESOURCE_EXHAUSTED", "too many")
    assert cut.error == "cut off"


async def test_endpoints_that_are_away_are_named() -> None:
    (port,) = free_ports(1)
    for scheme in ("http", "grpc"):
        arm = build_arm({"url": f"{scheme}://127.0.0.1:{port}"})
        with pytest.raises(EndpointError, match=f"127.0.0.1:{port}"):
            await ask(arm, "say")


async def test_several_arms_in_turns(url: str) -> None:
    """Each begins in turn, and every turn has its mirror."""
    arms = [build_arm({"name": name, "url": url}) for name in "ABC"]
    runs: list[str] = []
    settings = Settings(loads=(Load(concurrency=2),), num_prompts=2, repeats=4)
    result = await run(arms, settings, GOOD, on_run=lambda words, _: runs.append(words[0]))
    assert "".join(runs) == "ABCCBABCAACB"
    assert [(pairing.first, pairing.second) for pairing in result.pairings] == [("A", "C"), ("B", "C")]


async def test_two_arms_in_one_run(url: str, doubles: HttpDoubles, tmp_path: Path) -> None:
    """HTTP against gRPC: pairs in ABBA order, warm-up outside the figures, a file that reads back."""
    settings = Settings(
        loads=(Load(concurrency=2), Load(kind="poisson", request_rate=500.0)),
        num_prompts=4,
        repeats=2,
        goodput_ms={"e2el": 60_000.0},
        save_detailed=True,
    )
    runs: list[str] = []
    double = GrpcDouble()
    async with serving_grpc(double) as grpc_url:
        arms = [build_arm({"name": "A", "url": url}), build_arm({"name": "B", "url": grpc_url})]
        result = await run(arms, settings, GOOD, on_run=lambda words, _: runs.append(words))
    assert [words.split(",")[0] for words in runs] == ["A", "B", "B", "A"] * 2
    assert [(cell.arm, cell.load) for cell in result.cells] == [
        ("A", "2 at once"),
        ("B", "2 at once"),
        ("A", "500/s"),
        ("B", "500/s"),
    ]
    for cell in result.cells:
        assert (cell.total.requests, cell.total.completed, cell.total.output_tokens) == (8, 8, 8 * NUM_TOKENS)
        assert cell.total.good_share == 1.0
        assert len(cell.requests) == 8
    assert (result.cells[0].total.drafting, result.cells[0].total.delay) == (None, None)
    assert result.cells[1].total.drafting is not None
    assert result.cells[1].total.drafting.accepted_length == 1.5
    for pairing in result.pairings:
        assert (pairing.same_texts, pairing.texts) == (8, 8)
        assert {"output_throughput", "ttft_mean", "tpot_mean"} <= pairing.ratios.keys()
    # Two cells, each with a warm-up of all four prompts and two runs.
    assert len(doubles.bodies) == len(double.requests) == 2 * (4 + 2 * 4)
    path = tmp_path / "result.json"
    result.save(path)
    assert load_result(path) == result
    assert "say 0" not in path.read_text()
    assert json.loads(path.read_text())["sources"] == {"mine": "the test"}


async def test_failures_of_some_requests_are_counted_and_of_all_warm_ups_told(url: str) -> None:
    some = PromptSet("some", "the test", ((Prompt("s/0", "say"), Prompt("s/1", "<refuse>"), Prompt("s/2", "<cut>")),))
    settings = Settings(loads=(Load(concurrency=3),), num_prompts=3, num_warmups=0)
    (cell,) = (await run([build_arm({"name": "A", "url": url})], settings, some)).cells
    assert cell.total.errors == {"HTTP 429": 1, "cut off": 1}
    assert cell.total.completed == 1
    none = PromptSet("none", "the test", ((Prompt("n/0", "<refuse>"),),))
    with pytest.raises(EndpointError, match=r"every warm-up request of A failed; the first: HTTP 429: .*too many"):
        await run([build_arm({"name": "A", "url": url})], Settings(loads=(Load(concurrency=1),)), none)


async def test_runs_that_repeat_prompts_are_all_warmed_up_alike(url: str, doubles: HttpDoubles) -> None:
    """Otherwise the second load of a sweep would find the first one's prompts in a prefix cache."""
    arm = build_arm({"name": "A", "url": url})
    await run([arm], Settings(loads=(Load(concurrency=1), Load(concurrency=2)), num_prompts=4), GOOD)
    texts = [body["messages"][0]["content"] for body in doubles.bodies]
    assert len(texts) == 2 * (4 + 4)
    assert {texts.count(text) for text in texts} == {4}
    doubles.bodies.clear()
    await run([arm], Settings(loads=(Load(concurrency=1),), num_prompts=4), GOOD)
    texts = [body["messages"][0]["content"] for body in doubles.bodies]
    assert len(texts) == len(set(texts)) == 2 + 4


async def test_unique_prompts_never_repeat(url: str, doubles: HttpDoubles) -> None:
    settings = Settings(loads=(Load(concurrency=2),), num_prompts=4, num_warmups=2, repeats=2, unique_prompts=True)
    await run([build_arm({"name": "A", "url": url})], settings, GOOD)
    texts = [body["messages"][0]["content"] for body in doubles.bodies]
    assert len(set(texts)) == len(texts) == 10


async def test_contexts_are_sized_by_what_the_server_counts(url: str, doubles: HttpDoubles) -> None:
    settings = Settings(loads=(Load(concurrency=1),), contexts=(32, 64), num_prompts=2, num_warmups=0)
    result = await run([build_arm({"name": "A", "url": url})], settings)
    probe, *rest = [len(body["messages"][0]["content"]) for body in doubles.bodies]
    per_token = probe / 9  # the double counts 9 tokens in any prompt
    mark = len("[01234567] ")
    assert rest == [round(32 * per_token) + mark] * 2 + [round(64 * per_token) + mark] * 2
    assert [cell.dataset for cell in result.cells] == ["context-32", "context-64"]


@pytest.mark.parametrize(("arms", "told"), [(["A", "A"], "arms"), ([], "arms"), (["A", "B"], "repeats")])
async def test_settings_that_do_not_go_together_are_told(arms: list[str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        await run([Arm(name=name) for name in arms], Settings(loads=(Load(concurrency=1),)))
