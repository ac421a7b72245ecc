"""The same prompt with and without drafts, side by side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc.aio
import pytest
from playwright.async_api import expect
from transformers import PreTrainedTokenizerFast

from protos import generation_pb2 as pb
from protos import target_pb2
from tests.integration.page.conftest import Open, Word, steps

pytestmark = [pytest.mark.long, pytest.mark.asyncio(loop_scope="package")]

PLAIN = [[Word(text, "plain")] for text in ("a", "b", "c", "d", "e")]
DRAFTED = [
    [Word("a", "plain")],
    [Word("b", "accepted"), Word("c", "accepted"), Word("d", "bonus")],
    [Word("e", "plain")],
]


async def test_equal_answers_are_called_identical(scene: Open, tokenizer: PreTrainedTokenizerFast) -> None:
    async with scene() as ready:
        target = ready.setup.target
        plain, drafted = steps(tokenizer, *PLAIN), steps(tokenizer, *DRAFTED)
        target.script = lambda request, context: (plain if request.speculation.drafter == "none" else drafted)(
            request, context
        )
        await ready.compare()
        await ready.send("hi")
        verdict = ready.page.locator(".verdict")
        await expect(verdict).to_contain_text("Identical, all 5 tokens of them")
        # 4 tokens in 0.4 s against 4 in 0.2 s
        await expect(verdict).to_contain_text("2.00 × the speed after the first token: 10.0 plainly, 20.0 tokens/s")
        await expect(verdict).to_contain_text("one after the other")
        first, second = target.requests
        assert (first.speculation.drafter, second.speculation.drafter) == ("none", "auto")
        assert first.sampling.seed == second.sampling.seed
        assert first.prompt_ids == second.prompt_ids


async def test_a_difference_is_found_and_shown(scene: Open, tokenizer: PreTrainedTokenizerFast) -> None:
    async with scene() as ready:
        plain, other = steps(tokenizer, *PLAIN), steps(tokenizer, *PLAIN[:3], [Word("x", "plain")], *PLAIN[4:])
        ready.setup.target.script = lambda request, context: (
            plain if request.speculation.drafter == "none" else other
        )(request, context)
        await ready.compare()
        await ready.send("hi")
        await expect(ready.page.locator(".verdict")).to_contain_text("Different from token 4 on")
        await expect(ready.page.locator(".t.differs")).to_have_text(["d", "x"])


async def test_together_means_at_the_same_time(scene: Open, tokenizer: PreTrainedTokenizerFast) -> None:
    async with scene() as ready:
        said = steps(tokenizer, *PLAIN)
        waiting: set[str] = set()
        met = asyncio.Event()

        async def meet(
            request: target_pb2.TargetRequest, context: grpc.aio.ServicerContext
        ) -> AsyncIterator[pb.GenerateChunk]:
            waiting.add(request.speculation.drafter)
            if len(waiting) == 2:
                met.set()
            await met.wait()
            async for chunk in said(request, context):
                yield chunk

        ready.setup.target.script = meet
        await ready.compare()
        await ready.page.get_by_label("Run").select_option("together")
        await ready.send("hi")
        await expect(ready.page.locator(".verdict")).to_contain_text("while both shared the machine")
