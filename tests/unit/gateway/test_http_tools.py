"""Tools go where the chat template has a place for them, and are refused where it has none."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from transformers import PreTrainedTokenizerFast

from tests.unit.gateway.conftest import Setup, opened
from tests.unit.gateway.tokenizers import byte_level

TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
ASKED = {"role": "user", "content": "1+2"}
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
TEMPLATE = (
    "{% if tools %}T{% for t in tools %}{{ t | tojson }}{% endfor %};{% endif %}{% for m in messages %}"
    "{{ m.role }}:{{ m.content }}{% for c in m.tool_calls %}!{{ c.function.arguments.b }}{% endfor %}"
    "{% if m.tool_call_id %}={{ m.tool_call_id }}{% endif %};{% endfor %}"
)


@pytest.fixture
def knowing() -> PreTrainedTokenizerFast:
    tokenizer = byte_level()
    tokenizer.chat_template = TEMPLATE
    return tokenizer


async def ask(setup: Setup, **fields: Any) -> httpx.Response:
    async with httpx.AsyncClient(base_url=setup.url) as plain:
        return await plain.post("/v1/chat/completions", json={"model": "tiny", "messages": [ASKED], **fields})


async def test_tools_reach_the_template(knowing: PreTrainedTokenizerFast) -> None:
    async with opened(knowing, max_tokens=4) as setup:
        setup.target._info.max_context = 1000
        for fields in ({"tool_choice": "auto"}, {}, {"parallel_tool_calls": True}):
            reply = await ask(setup, tools=[TOOL], **fields)
            assert reply.status_code == 200, reply.text
            assert knowing.decode(setup.target.requests[-1].prompt_ids) == f"T{json.dumps(TOOL)};user:1+2;"
        await ask(setup, tools=[TOOL], tool_choice="none")
        assert knowing.decode(setup.target.requests[-1].prompt_ids) == "user:1+2;"


async def test_calls_and_their_results_reach_the_template(knowing: PreTrainedTokenizerFast) -> None:
    async with opened(knowing, max_tokens=4) as setup:
        setup.target._info.max_context = 1000
        told = [ASKED, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
        reply = await ask(setup, messages=[*told, {"role": "tool", "tool_call_id": "c1", "content": "3"}])
        assert reply.status_code == 200, reply.text
        assert knowing.decode(setup.target.requests[-1].prompt_ids) == "user:1+2;assistant:!2;tool:3=c1;"


async def test_a_template_without_tools_refuses_them(setup: Setup) -> None:
    reply = await ask(setup, tools=[TOOL])
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "tools")
    assert "has no place for them" in reply.json()["error"]["message"]
    assert (await ask(setup, tools=[TOOL], tool_choice="none")).status_code == 200
    reply = await ask(setup, messages=[ASKED, {"role": "tool", "tool_call_id": "c1", "content": "3"}])
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "messages")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"tools": [TOOL], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL] * 129}, "tools"),
        ({"tools": [{"type": "retrieval", "function": {"name": "x"}}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": {"name": "x", "parameters": {"a": "x" * 999}}}]}, "messages"),
        ({"messages": [{"role": "assistant"}]}, "messages[0].content"),
        ({"messages": [{"role": "tool", "content": "3"}]}, "messages[0].tool_call_id"),
        ({"messages": [{"role": "user", "content": "3", "tool_call_id": "c1"}]}, "messages[0].tool_call_id"),
        ({"messages": [{"role": "user", "content": "3", "tool_calls": [CALL]}]}, "messages[0].tool_calls"),
        (
            {
                "messages": [
                    {"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "add", "arguments": "{"}}]}
                ]
            },
            "messages[0].tool_calls[0].function.arguments",
        ),
    ],
)
async def test_mistakes(knowing: PreTrainedTokenizerFast, fields: dict[str, Any], field: str) -> None:
    async with opened(knowing, max_prompt_characters=900, max_choices=1) as setup:
        reply = await ask(setup, **fields)
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, field), reply.text
