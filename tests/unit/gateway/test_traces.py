"""Where tokens came from, by HTTP."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from transformers import PreTrainedTokenizerFast

from protos import generation_pb2 as pb
from tests.unit.gateway.conftest import Setup
from tests.unit.gateway.scripted import finish
from tests.unit.gateway.test_http import chunks

SMILE = "\U0001f642"  # four bytes that the tokenizer has not learnt to join


def traced(tokenizer: PreTrainedTokenizerFast) -> tuple[pb.GenerateChunk, ...]:
    """A plain token; a character in several tokens, the last a bonus after rejected drafts; a special end."""
    (letter,) = tokenizer("t", add_special_tokens=False)["input_ids"]
    smile = tokenizer(SMILE, add_special_tokens=False)["input_ids"]
    assert len(smile) > 1
    end = tokenizer.eos_token_id
    origins = [pb.ORIGIN_ACCEPTED] * (len(smile) - 1) + [pb.ORIGIN_BONUS]
    traces = [pb.TokenTrace(origin=origin, drafter="mtp") for origin in origins]
    traces[-1].rejected.extend([smile[0], letter])
    return (
        pb.GenerateChunk(
            text="t", token_ids=[letter], token_times=[10.0], trace=[pb.TokenTrace(origin=pb.ORIGIN_PLAIN)]
        ),
        pb.GenerateChunk(text=SMILE, token_ids=smile, token_times=[10.5] * len(smile), trace=traces),
        # Its text is still held back, and yet it is told.
        pb.GenerateChunk(token_ids=[letter], token_times=[11.0], trace=[pb.TokenTrace(origin=pb.ORIGIN_PLAIN)]),
        finish(text="t", token_ids=[end], token_times=[11.5], trace=[pb.TokenTrace(origin=pb.ORIGIN_PLAIN)]),
    )


async def events(setup: Setup, path: str, **fields: Any) -> list[dict[str, Any]]:
    async with httpx.AsyncClient() as client:
        reply = await client.post(f"{setup.url}{path}", json={"model": "tiny", "stream": True, **fields})
    assert reply.status_code == 200, reply.text
    return [json.loads(line[6:]) for line in reply.text.split("\n\n") if line.startswith("data: {")]


@pytest.mark.parametrize(
    ("path", "prompt"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
        ("/v1/completions", {"prompt": "x"}),
    ],
)
async def test_a_traced_stream(
    setup: Setup, tokenizer: PreTrainedTokenizerFast, path: str, prompt: dict[str, Any]
) -> None:
    setup.target.script = chunks(*traced(tokenizer))
    told = await events(setup, path, **prompt, draftfleet={"trace": True})
    assert setup.target.requests[0].speculation.trace
    traces = [event["draftfleet"]["traces"] for event in told if "traces" in event.get("draftfleet", {})]
    assert [[(trace["choice"], len(trace["tokens"])) for trace in one] for one in traces] == [
        [(0, 1)],
        [(0, len(traces[1][0]["tokens"]))],
        [(0, 1)],
        [(0, 1)],
    ]
    tokens = [token for (trace,) in traces for token in trace["tokens"]]
    assert [token["origin"] for token in tokens[:2]] == ["plain", "accepted"]
    assert "".join(token["text"] for token in tokens) == f"t{SMILE}t"
    smile = traces[1][0]["tokens"]
    assert [token["text"] for token in smile] == [""] * (len(smile) - 1) + [SMILE]
    assert smile[-1]["origin"] == "bonus"
    assert [draft["text"] for draft in smile[-1]["rejected"]][1:] == ["t"]
    assert smile[-1]["rejected"][0]["text"].startswith("bytes:")
    assert {token["drafter"] for token in smile} == {"mtp"}
    assert [token["time"] for token in tokens] == [10.0, *[10.5] * len(smile), 11.0, 11.5]
    assert told[0]["draftfleet"].keys() >= {"seed", "class", "class_confidence"}
    assert told[-1]["draftfleet"]["num_rounds"] == 4


async def test_a_traced_answer_at_once(setup: Setup, tokenizer: PreTrainedTokenizerFast) -> None:
    setup.target.script = chunks(*traced(tokenizer))
    body = {"model": "tiny", "prompt": "x", "draftfleet": {"trace": True}}
    async with httpx.AsyncClient() as client:
        told = (await client.post(f"{setup.url}/v1/completions", json=body)).json()
    (trace,) = told["draftfleet"]["traces"]
    assert trace["choice"] == 0
    assert "".join(token["text"] for token in trace["tokens"]) == told["choices"][0]["text"]


async def test_nobody_who_does_not_ask_is_told(setup: Setup) -> None:
    told = await events(setup, "/v1/completions", prompt="x")
    assert not setup.target.requests[0].speculation.trace
    assert not any("traces" in event.get("draftfleet", {}) for event in told)
