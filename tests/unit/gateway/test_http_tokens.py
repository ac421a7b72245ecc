"""/tokenize and /detokenize, by the shapes that vLLM's clients know."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from transformers import PreTrainedTokenizerFast

from tests.unit.gateway.conftest import Setup, opened


async def test_a_text_and_back(setup: Setup, tokenizer: PreTrainedTokenizerFast) -> None:
    text = "the dog caf\u00e9 \U0001f600"
    ids = tokenizer(text)["input_ids"]
    async with httpx.AsyncClient(base_url=setup.url) as plain:
        told = (await plain.post("/tokenize", json={"model": "tiny", "prompt": text})).json()
        assert told == {"count": len(ids), "max_model_len": 64, "tokens": ids, "token_strs": None}
        told = (await plain.post("/tokenize", json={"prompt": text, "return_token_strs": True})).json()
        assert told["token_strs"] == tokenizer.convert_ids_to_tokens(ids)
        assert (await plain.post("/detokenize", json={"model": "tiny", "tokens": ids})).json() == {"prompt": text}
        assert (await plain.post("/detokenize", json={"tokens": []})).json() == {"prompt": ""}


async def test_a_chat_is_counted_as_generation_counts_it(setup: Setup) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    async with httpx.AsyncClient(base_url=setup.url) as plain:
        told = (await plain.post("/tokenize", json={"messages": messages, "add_special_tokens": False})).json()
        text = (await plain.post("/detokenize", json={"tokens": told["tokens"]})).json()["prompt"]
        assert text == "<|start|>user\nhi<|end|>\n<|start|>assistant\n"
        answer = await plain.post("/v1/chat/completions", json={"model": "tiny", "messages": messages})
        assert answer.json()["usage"]["prompt_tokens"] == told["count"]


@pytest.mark.parametrize(
    ("path", "body", "status", "field"),
    [
        ("tokenize", {}, 400, "prompt"),
        ("tokenize", {"prompt": "a", "messages": []}, 400, "prompt"),
        ("tokenize", {"prompt": "x" * 101}, 400, "prompt"),
        ("tokenize", {"prompt": "a", "model": "other"}, 404, "model"),
        ("tokenize", {"prompt": "a", "add_speciel_tokens": True}, 400, "add_speciel_tokens"),
        (
            "tokenize",
            {"messages": [{"role": "user", "content": "a"}], "add_special_tokens": True},
            400,
            "add_special_tokens",
        ),
        ("detokenize", {"tokens": [400]}, 400, "tokens"),
        ("detokenize", {"tokens": [-1]}, 400, "tokens"),
        ("detokenize", {"tokens": [5] * 101}, 400, "tokens"),
        ("detokenize", {}, 400, "tokens"),
    ],
)
async def test_mistakes(
    tokenizer: PreTrainedTokenizerFast, path: str, body: dict[str, Any], status: int, field: str
) -> None:
    async with (
        opened(tokenizer, max_prompt_characters=100) as setup,
        httpx.AsyncClient(base_url=setup.url) as plain,
    ):
        reply = await plain.post(f"/{path}", json=body)
        assert (reply.status_code, reply.json()["error"]["param"]) == (status, field), reply.text
        assert setup.gateway.admission.active == 0


async def test_values_that_mean_off_are_taken(setup: Setup) -> None:
    neutral = {
        "skip_special_tokens": True,
        "spaces_between_special_tokens": True,
        "use_beam_search": False,
        "length_penalty": 1,
        "priority": 0,
        "stream_options": None,
        "return_token_ids": False,
    }
    async with httpx.AsyncClient(base_url=f"{setup.url}/v1/") as plain:
        text = {"model": "tiny", "prompt": "x", "best_of": 1, "suffix": "", "add_special_tokens": True}
        assert (await plain.post("completions", json={**text, **neutral})).status_code == 200
        chat: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "tools": []}
        chat |= {"add_generation_prompt": True, "continue_final_message": False, "modalities": ["text"]}
        assert (await plain.post("chat/completions", json={**chat, **neutral})).status_code == 200
