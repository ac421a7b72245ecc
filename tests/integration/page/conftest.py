"""The page in a real browser, before a gateway whose target says what the test writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import grpc.aio
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect
from transformers import PreTrainedTokenizerFast

from protos import generation_pb2 as pb
from protos import target_pb2
from tests.browsers import ARGUMENTS, MISSING, find_chromium
from tests.unit.gateway.conftest import Setup, opened
from tests.unit.gateway.scripted import Script, finish
from tests.unit.gateway.tokenizers import byte_level

ORIGINS = {"accepted": pb.ORIGIN_ACCEPTED, "bonus": pb.ORIGIN_BONUS, "plain": pb.ORIGIN_PLAIN}
expect.set_options(timeout=20_000)
WIDE, NARROW = {"width": 1360, "height": 860}, {"width": 360, "height": 740}


@dataclass
class Scene:
    """One open page, and what the browser noticed meanwhile."""

    page: Page
    setup: Setup
    complaints: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    keys: list[str] = field(default_factory=list)  # authorization headers that were sent

    async def send(self, prompt: str) -> None:
        """Sends a prompt and waits until its answer has ended."""
        await self.page.locator("#prompt").fill(prompt)
        await self.page.locator("#act").click()
        await self.ended()

    async def ended(self) -> None:
        await expect(self.page.locator("#act")).to_have_text("Send")

    async def compare(self) -> None:
        await self.page.get_by_role("radio", name="Side by side").check(force=True)


Open = Callable[..., AbstractAsyncContextManager[Scene]]


@dataclass(frozen=True)
class Word:
    """A piece of text of one origin, and the text that was drafted in its place."""

    text: str
    origin: str
    rejected: str = ""


def ids(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def steps(tokenizer: PreTrainedTokenizerFast, *given: Sequence[Word], is_endless: bool = False) -> Script:
    """An answer of these engine steps, a tenth of a second apart."""

    async def script(
        request: target_pb2.TargetRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.GenerateChunk]:
        count = 0
        for number, words in enumerate(given):
            chunk = pb.GenerateChunk(text="".join(word.text for word in words))
            for word in words:
                drafter = "" if word.origin == "plain" else "dfly"
                for place, token in enumerate(ids(tokenizer, word.text)):
                    rejected = ids(tokenizer, word.rejected) if place == 0 else []
                    chunk.token_ids.append(token)
                    chunk.token_times.append(1000.0 + number / 10)
                    if request.speculation.trace:
                        chunk.trace.add(origin=ORIGINS[word.origin], rejected=rejected, drafter=drafter)
                    count += 1
            yield chunk
        if is_endless:
            await asyncio.Event().wait()
        yield finish(prompt_tokens=len(request.prompt_ids), completion_tokens=count, drafter="dfly")

    return script


@pytest.fixture(scope="package")
def tokenizer() -> PreTrainedTokenizerFast:
    return byte_level()


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        path = find_chromium(playwright.chromium.executable_path)
        if path is None:
            pytest.skip(MISSING)
        found = await playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield found
        await found.close()


@pytest.fixture(scope="package")
def scene(browser: Browser, tokenizer: PreTrainedTokenizerFast) -> Open:
    @asynccontextmanager
    async def open_scene(*, allowed: str = "", **options: object) -> AsyncIterator[Scene]:
        """`allowed`: a complaint that this test provokes. Anything else that the browser says fails it."""
        async with (
            opened(tokenizer, max_context=4096, max_tokens=4096) as setup,
            await browser.new_context(**{"viewport": WIDE, **options}) as context,  # type: ignore[arg-type]
        ):
            page = await context.new_page()
            ready = Scene(page, setup)
            page.on("console", lambda message: ready.complaints.append(f"{message.type}: {message.text}"))
            page.on("pageerror", lambda error: ready.complaints.append(f"uncaught: {error}"))
            page.on("request", lambda request: ready.hosts.add(urlsplit(request.url).netloc))
            page.on("request", lambda request: ready.keys.append(request.headers.get("authorization", "")))
            await page.goto(f"{setup.url}/")
            await expect(page.locator("#replicas tbody tr")).to_have_count(1)
            yield ready
            assert [said for said in ready.complaints if not allowed or allowed not in said] == []
            assert ready.hosts == {urlsplit(setup.url).netloc}

    return open_scene
