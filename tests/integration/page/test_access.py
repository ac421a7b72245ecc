"""Who may use the page: by keyboard, by ear, on a phone, and with a key."""

from __future__ import annotations

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import expect
from transformers import PreTrainedTokenizerFast

from tests.integration.page.conftest import NARROW, WIDE, Open, Scene
from tests.integration.page.conftest import steps as said_in
from tests.integration.page.test_answer import ANSWER
from tests.unit.gateway.scripted import member

pytestmark = [pytest.mark.long, pytest.mark.asyncio(loop_scope="package")]

_STANDARDS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


async def no_barriers(scene: Scene, where: str) -> None:
    options = {"resultTypes": ["violations"], "runOnly": {"type": "tag", "values": _STANDARDS}}
    found = await Axe().run(scene.page, options=options)
    assert found.violations_count == 0, f"{where}:\n{found.generate_report()}"


async def no_sideways_scrolling(scene: Scene) -> None:
    root = scene.page.locator("html")
    assert await root.evaluate("root => root.scrollWidth <= root.clientWidth")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["desktop", "phone"])
async def test_nobody_is_shut_out(
    scene: Open, tokenizer: PreTrainedTokenizerFast, theme: str, size: dict[str, int]
) -> None:
    # The checker adds a script of its own, which the page's policy would refuse.
    async with scene(color_scheme=theme, viewport=size, bypass_csp=True, reduced_motion="reduce") as ready:
        ready.setup.target.script = said_in(tokenizer, *ANSWER)
        await no_barriers(ready, "empty")
        await ready.send("hi")
        await ready.page.locator("#show-rejected").evaluate("box => box.click()")
        if size is NARROW:
            await ready.page.locator("#side > summary").click()
            await ready.page.locator("#settings > summary").click()
        await ready.page.locator(".text").focus()
        await ready.page.keyboard.press("End")
        await no_barriers(ready, "an answer")
        await no_sideways_scrolling(ready)
        await ready.compare()
        await ready.send("hi")
        await no_barriers(ready, "side by side")
        await no_sideways_scrolling(ready)


async def test_all_of_it_by_keyboard(scene: Open, tokenizer: PreTrainedTokenizerFast) -> None:
    async with scene() as ready:
        page, keyboard = ready.page, ready.page.keyboard
        ready.setup.target.script = said_in(tokenizer, *ANSWER)
        await keyboard.press("Tab")
        await expect(page.get_by_role("link", name="Skip to the prompt")).to_be_focused()
        await keyboard.press("Enter")
        await expect(page.locator("#prompt")).to_be_focused()
        await keyboard.type("hi")
        await keyboard.press("Shift+Enter")
        await keyboard.type("there")
        await keyboard.press("Enter")
        await ready.ended()
        await expect(page.locator(".asked p")).to_have_text("hi\nthere")
        await expect(page.locator("#told")).to_contain_text("Answer done")
        await expect(page.locator("#prompt")).to_be_focused()
        seen = []
        for _ in range(40):
            await keyboard.press("Tab")
            focused = page.locator(":focus")
            if not await focused.count():
                break
            seen.append(await focused.evaluate("e => e.id || e.className || e.name || e.localName"))
        assert [name for name in seen if name in ("act", "drafter", "temperature", "max_tokens", "seed", "clear")] == [
            *("act", "drafter", "temperature", "max_tokens", "seed", "clear")
        ]
        assert {"show-rejected", "fleet-live", "replicas"} <= set(seen)


async def test_the_colours_can_be_chosen_and_stay_so(scene: Open) -> None:
    async with scene(color_scheme="light") as ready:
        ground = ready.page.locator("body")
        light = await ground.evaluate("body => getComputedStyle(body).backgroundColor")
        await ready.page.get_by_label("Colours").select_option("dark")
        dark = await ground.evaluate("body => getComputedStyle(body).backgroundColor")
        assert dark != light
        await ready.page.reload()
        assert await ground.evaluate("body => getComputedStyle(body).backgroundColor") == dark
        await expect(ready.page.get_by_label("Colours")).to_have_value("dark")


async def test_a_key_is_sent_and_kept_in_this_tab_only(scene: Open, tokenizer: PreTrainedTokenizerFast) -> None:
    async with scene() as ready:
        page = ready.page
        ready.setup.target.script = said_in(tokenizer, *ANSWER)
        assert set(ready.keys) == {""}
        await page.get_by_text("API key").click()
        await page.get_by_label("Key of this service").fill("secret-key")
        await page.keyboard.press("Enter")
        ready.keys.clear()
        await ready.send("hi")
        assert set(ready.keys) == {"Bearer secret-key"}
        assert "secret-key" not in await page.evaluate("JSON.stringify({ ...localStorage }) + document.cookie")


async def test_the_fleet_is_live(scene: Open) -> None:
    async with scene() as ready:
        rows = ready.page.locator("#replicas tbody tr")
        await expect(rows.first).to_contain_text("bitwise")
        ready.setup.members.append(member("drafter", "d0", "127.0.0.1:1", kind="mtp", sessions=3, queue=2))
        await expect(rows).to_have_count(2)
        await expect(rows.last.locator("td")).to_have_text(["3/16", "0", "2"])
        await expect(ready.page.locator("#drafter")).to_contain_text("dfly (none here)")
        await ready.page.locator("#fleet-live").uncheck()
        ready.setup.members.pop()
        await ready.page.wait_for_timeout(1500)
        await expect(rows).to_have_count(2)
