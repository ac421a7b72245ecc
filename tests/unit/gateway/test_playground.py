"""The page's files and the headers that guard them."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from services.gateway import playground
from tests.unit.gateway.conftest import Setup

PAGE = Path(playground.__file__).parent / "page"


async def test_the_page_is_guarded(setup: Setup) -> None:
    async with httpx.AsyncClient(base_url=setup.url) as client:
        reply = await client.get("/")
        assert reply.status_code == 200
        assert reply.headers["content-type"] == "text/html; charset=utf-8"
        policy = dict(part.strip().partition(" ")[::2] for part in reply.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert {policy[name] for name in ("script-src", "style-src", "connect-src", "img-src")} == {"'self'"}
        assert {policy[name] for name in ("base-uri", "form-action", "frame-ancestors")} == {"'none'"}
        assert policy["require-trusted-types-for"] == "'script'"
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["referrer-policy"] == "no-referrer"
        assert (await client.head("/")).status_code == 200


async def test_every_file_that_is_named_is_there(setup: Setup) -> None:
    named = set(re.findall(r'(?:src|href)="page/([^"]+)"', (PAGE / "index.html").read_text()))
    for script in PAGE.glob("*.js"):
        named |= set(re.findall(r'from "\./([^"]+)"', script.read_text()))
    assert named == {path.name for path in PAGE.iterdir()} - {"index.html"}
    async with httpx.AsyncClient(base_url=setup.url) as client:
        for name in named:
            reply = await client.get(f"/page/{name}")
            assert reply.status_code == 200, name
            assert reply.content == (PAGE / name).read_bytes()
            assert reply.headers["content-security-policy"]
            again = await client.get(f"/page/{name}", headers={"if-none-match": reply.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("path", ["/page/missing.js", "/page/..%2fconfig.py", "/page/%2e%2e/config.py", "/page/"])
async def test_nothing_else_is_sent(setup: Setup, path: str) -> None:
    async with httpx.AsyncClient(base_url=setup.url) as client:
        reply = await client.get(path)
        assert reply.status_code == 404
        assert reply.json()["error"]["code"] == "unknown_url"


def test_nothing_in_the_page_makes_markup_from_text_or_asks_elsewhere() -> None:
    for path in PAGE.iterdir():
        text = path.read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text), path
        foreign = set(re.findall(r"https?://[^\s\"')]+", text)) - {"http://www.w3.org/2000/svg"}
        assert not foreign, path
