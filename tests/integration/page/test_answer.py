"""What an answer looks like: the right tokens marked, and nothing but text."""

from __future__ import annotations

from typing import Any

import grpc
import httpx
import pytest
from playwright.async_api import Page, expect
from transformers import PreTrainedTokenizerFast

from tests.integration.page.conftest import Open, Scene, Word, ids, steps
from tests.unit.gateway.scripted import fail

pytestmark = [pytest.mark.long, pytest.mark.asyncio(loop_scope="package")]

ANSWER = (
    [Word("the", "plain")],
    [Word(" quick", "accepted"), Word(" brown", "accepted"), Word(" fox", "bonus", rejected=" dog jumps")],
    [Word(" jumps", "plain")],
    [Word(" café", "accepted"), Word(" 😀", "bonus")],
)
HOSTILE = """<img src=x onerror="document.title='pwned'"><script>document.title='pwned'</script><b>bold</b>"""


async def shown(page: Page) -> list[dict[str, Any]]:
    """Every token on the page as the API would tell it."""
    return await page.locator(".text").last.evaluate(
        """text => {
            let rejected = [];
            const tokens = [];
            for (const node of text.children) {
                if (node.localName === "del") { rejected.push(node.textContent); continue; }
                const origin = ["accepted", "bonus", "plain"].find(name => node.classList.contains(name));
                tokens.push({ text: node.textContent, origin, rejected });
                rejected = [];
            }
            return tokens;
        }"""
    )


async def told(scene: Scene, prompt: str) -> tuple[str, list[dict[str, Any]]]:
    """The same answer by the API itself."""
    body = {
        "model": "default",
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": 99,
        "draftfleet": {"trace": True},
    }
    async with httpx.AsyncClient() as client:
        reply = (await client.post(f"{scene.setup.url}/v1/chat/completions", json=body)).json()
    tokens = reply["draftfleet"]["traces"][0]["tokens"]
    kept = [
        {"text": t["text"], "origin": t["origin"], "rejected": [draft["text"] for draft in t["rejected"]]}
        for t in tokens
    ]
    return reply["choices"][0]["message"]["content"], kept


async def test_every_token_is_marked_as_the_api_traces_it(scene: Open, tokenizer: PreTrainedTokenizerFast) -> None:
    async with scene() as ready:
        ready.setup.target.script = steps(tokenizer, *ANSWER)
        await ready.send("hi")
        text, tokens = await told(ready, "hi")
        assert await shown(ready.page) == tokens
        assert {token["origin"] for token in tokens} == {"accepted", "bonus", "plain"}
        assert any(token["rejected"] for token in tokens)
        assert "".join(token["text"] for token in tokens) == text == "the quick brown fox jumps café 😀"
        for kind in ("accepted", "bonus", "plain"):
            count = sum(token["origin"] == kind for token in tokens)
            await expect(ready.page.locator(f"#f-{kind}")).to_have_text(str(count))
        await expect(ready.page.locator("#f-length")).to_have_text("2.50")
        decoded = sum(len(t) for t in (ids(tokenizer, word.text) for step in ANSWER[1:] for word in step))
        await expect(ready.page.locator("#f-speed")).to_have_text(f"{decoded / 0.3:.1f}")
        await expect(ready.page.locator("#f-drafter")).to_have_text("dfly")
        await expect(ready.page.locator("#f-class")).to_have_text(
            f"{ready.setup.target.requests[0].task_class}, "
            f"{round(100 * ready.setup.target.requests[0].class_confidence)} % sure"
        )


async def test_rejected_drafts_are_seen_under_the_pointer_and_by_keyboard(
    scene: Open, tokenizer: PreTrainedTokenizerFast
) -> None:
    async with scene() as ready:
        page = ready.page
        ready.setup.target.script = steps(tokenizer, *ANSWER)
        await ready.send("hi")
        card = page.locator("#card")
        await expect(card).to_be_hidden()
        await page.locator(".t.replaced").hover()
        await expect(card).to_contain_text("bonus")
        rejected = str(tokenizer.decode(ids(tokenizer, " dog jumps")[:1]))
        await expect(card.locator("del").first).to_have_text(rejected.replace(" ", "␣"))
        await page.locator("#prompt").hover()
        await expect(card).to_be_hidden()

        await page.locator(".text").focus()
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("ArrowDown")
        second_step = len(ids(tokenizer, "the"))
        await expect(page.locator(".t.current")).to_have_attribute("data-index", str(second_step))
        index = await page.locator(".t.replaced").get_attribute("data-index")
        while await page.locator(".t.current").get_attribute("data-index") != index:
            await page.keyboard.press("ArrowRight")
        await expect(page.locator("#told")).to_contain_text(f"rejected: “{rejected.strip()}”")
        await page.keyboard.press("Escape")
        await expect(card).to_be_hidden()

        await expect(page.locator(".text del.r").first).to_be_hidden()
        await page.get_by_label("Show rejected drafts in the text").check()
        await expect(page.locator(".text del.r").first).to_be_visible()


async def test_hostile_text_stays_text(scene: Open, tokenizer: PreTrainedTokenizerFast) -> None:
    async with scene() as ready:
        page = ready.page
        ready.setup.target.script = steps(
            tokenizer, [Word(HOSTILE, "accepted"), Word("!", "bonus", rejected=HOSTILE)], [Word("</span>", "plain")]
        )
        await ready.send(HOSTILE)
        await expect(page.locator(".asked p")).to_have_text(HOSTILE)
        said = "".join(token["text"] for token in await shown(page))
        assert said == f"{HOSTILE}!</span>"
        assert ["".join(t["rejected"]) for t in await shown(page) if t["rejected"]] == [HOSTILE]
        await page.locator(".t.replaced").hover()
        await expect(page.locator("#card")).to_be_visible()
        await ready.compare()
        await ready.send(HOSTILE)
        await expect(page.locator(".asked-both")).to_have_text(HOSTILE)
        for foreign in ("main img", "main script", ".text b", ".asked b", ".asked-both b", "#card b"):
            await expect(page.locator(foreign)).to_have_count(0)
        assert await page.title() == "draftfleet"


async def test_stop_ends_the_generation(scene: Open, tokenizer: PreTrainedTokenizerFast) -> None:
    async with scene() as ready:
        ready.setup.target.script = steps(tokenizer, *ANSWER, is_endless=True)
        await ready.page.locator("#prompt").fill("go on")
        await ready.page.keyboard.press("Enter")
        await expect(ready.page.locator("#act")).to_have_text("Stop")
        await expect(ready.page.locator(".note")).to_contain_text("in 4 steps")
        await ready.page.locator("#act").click()
        await ready.ended()
        await expect(ready.page.locator(".note")).to_contain_text("stopped")
        await ready.setup.target.was_cancelled.wait()


async def test_a_chat_that_was_cleared_while_it_ran_is_forgotten(
    scene: Open, tokenizer: PreTrainedTokenizerFast
) -> None:
    async with scene() as ready:
        ready.setup.target.script = steps(tokenizer, *ANSWER, is_endless=True)
        await ready.page.locator("#prompt").fill("go on")
        await ready.page.keyboard.press("Enter")
        await expect(ready.page.locator(".note")).to_contain_text("in 4 steps")
        await ready.page.get_by_role("button", name="Clear chat").click()
        await ready.ended()
        ready.setup.target.script = steps(tokenizer, *ANSWER)
        await ready.send("again")
        sent = tokenizer.decode(ready.setup.target.requests[-1].prompt_ids)
        assert "again" in sent
        assert "go on" not in sent


async def test_the_services_own_words_tell_what_went_wrong(scene: Open) -> None:
    async with scene(allowed="Failed to load resource") as ready:
        ready.setup.target.script = fail(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
        await ready.page.locator("#prompt").fill("hi")
        await ready.page.locator("#act").click()
        await expect(ready.page.get_by_role("alert")).to_have_text("every target replica is full; try again later")
        await ready.ended()
        await expect(ready.page.locator("#prompt")).to_have_value("hi")  # to be sent again


async def test_the_next_turn_has_the_last_one_before_it(scene: Open, tokenizer: PreTrainedTokenizerFast) -> None:
    async with scene() as ready:
        ready.setup.target.script = steps(tokenizer, *ANSWER)
        await ready.send("first")
        await ready.page.get_by_label("Seed").fill("7")
        await ready.page.get_by_label("Temperature").fill("0.5")
        await ready.page.get_by_label("Max tokens").fill("33")
        await ready.page.get_by_label("Drafter").select_option("lookup")
        await ready.page.get_by_label("Speculate").select_option("in every step")
        await ready.send("second")
        sent = ready.setup.target.requests[-1]
        text = tokenizer.decode(sent.prompt_ids)
        assert text.index("first") < text.index("the quick brown fox jumps") < text.index("second")
        assert (sent.sampling.seed, sent.sampling.temperature, sent.sampling.max_tokens) == (7, 0.5, 33)
        assert (sent.speculation.drafter, sent.speculation.force, sent.speculation.trace) == ("lookup", True, True)
        assert not ready.setup.target.requests[0].speculation.force
        await ready.page.get_by_role("button", name="Clear chat").click()
        await expect(ready.page.locator(".turn")).to_have_count(0)
