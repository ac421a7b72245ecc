"""The playground page before the whole service, with the real model and its drafters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.browsers import ARGUMENTS, MISSING, find_chromium
from tests.e2e.prompts import CODE
from tests.e2e.service import Service

_ANSWER_MS = 120_000
# Browsers do not keep what was streamed, so a copy of every answer is taken on its way to the page.
_COPY_ANSWERS = """
window.answers = [];
const ask = window.fetch;
window.fetch = async (path, options) => {
    const reply = await ask(path, options);
    if (!path.includes("completions")) return reply;
    const [kept, given] = reply.body.tee();
    window.answers.push(new Response(kept).text());
    return new Response(given, reply);
};
"""


@pytest.fixture(scope="module")
def page(service: Service) -> Iterator[Page]:
    with sync_playwright() as playwright:
        path = find_chromium(playwright.chromium.executable_path)
        if path is None:
            pytest.skip(MISSING)
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        opened = browser.new_page()
        said: list[str] = []
        opened.on("console", lambda message: said.append(message.text))
        opened.on("pageerror", lambda error: said.append(str(error)))
        opened.add_init_script(_COPY_ANSWERS)
        opened.goto(service.http_url)
        yield opened
        assert said == []
        browser.close()


def ended(page: Page) -> None:
    expect(page.locator("#act")).to_have_text("Send", timeout=_ANSWER_MS)


def test_the_answer_is_coloured_as_it_was_drafted(page: Page, service: Service) -> None:
    expect(page.locator("#model")).to_contain_text("SmolLM2-135M-Instruct")
    roles = {member["role"] for member in service.status()["members"]}
    for role in roles:
        expect(page.locator(f"#replicas tr.{role}").first).to_be_visible()
    page.get_by_label("Max tokens").fill("96")
    page.get_by_label("Speculate").select_option("in every step")  # whatever the costs on this machine are
    page.locator("#prompt").fill(CODE)
    page.keyboard.press("Enter")
    ended(page)
    (streamed,) = page.evaluate("Promise.all(window.answers)")
    events = [json.loads(line[6:]) for line in streamed.splitlines() if line.startswith("data: {")]
    tokens = [token for event in events for token in _tokens(event)]
    marked = page.locator(".text .t").evaluate_all(
        "spans => spans.map(span => [span.textContent, span.classList[1], span.classList.contains('replaced')])"
    )
    assert marked == [[token["text"], token["origin"], bool(token["rejected"])] for token in tokens]
    assert {token["origin"] for token in tokens} >= {"accepted", "bonus"}
    assert "merge_intervals" in page.locator(".text").inner_text()
    last = events[-1]["draftfleet"]
    expect(page.locator("#f-length")).to_have_text(f"{last['accepted_length']:.2f}")
    expect(page.locator("#f-class")).to_contain_text("code")
    expect(page.locator("#f-drafter")).to_have_text(last["drafter"])


def test_side_by_side_the_texts_are_the_same(page: Page, service: Service) -> None:
    page.get_by_role("radio", name="Side by side").check(force=True)
    for temperature, order in (("0", "turns"), ("0.8", "together")):
        page.get_by_label("Temperature").fill(temperature)
        page.get_by_label("Run").select_option(order)
        page.locator("#prompt").fill(CODE)
        page.locator("#act").click()
        ended(page)
        verdict = page.locator(".verdict")
        if service.status()["model"]["exactness"] == "bitwise":
            expect(verdict).to_contain_text("Identical")
        expect(verdict).to_contain_text("× the speed")


def _tokens(event: dict[str, Any]) -> list[dict[str, Any]]:
    return [token for trace in event.get("draftfleet", {}).get("traces", ()) for token in trace["tokens"]]
