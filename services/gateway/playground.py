"""The playground page: static files, read once, sent with headers that let nothing else in."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files

from fastapi import FastAPI, Request
from fastapi.responses import Response

from services.gateway.errors import ApiError, ErrorKind

_INDEX = "index.html"
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "cache-control": "no-cache",  # asked again each time, sent again only when it has changed
}


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    media_type: str
    tag: str


class Playground:
    """Serves the page at / and its files below /page/."""

    def __init__(self) -> None:
        self._files = _read()

    def add_to(self, app: FastAPI) -> None:
        app.add_api_route("/", self.index, methods=["GET", "HEAD"])
        app.add_api_route("/page/{name}", self.file, methods=["GET", "HEAD"])

    async def index(self, request: Request) -> Response:
        return self._answer(request, _INDEX)

    async def file(self, request: Request, name: str) -> Response:
        return self._answer(request, name)

    def _answer(self, request: Request, name: str) -> Response:
        file = self._files.get(name)
        if file is None:
            raise ApiError(ErrorKind.UNKNOWN_PATH, f"{request.url.path[:256]}: there is no such path")
        headers = {**HEADERS, "etag": file.tag}
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        return Response(file.content, media_type=file.media_type, headers=headers)


def _read() -> dict[str, _File]:
    found = {}
    for entry in files("services.gateway").joinpath("page").iterdir():
        media_type = _MEDIA_TYPES.get(f".{entry.name.rpartition('.')[2]}")
        if media_type is not None and entry.is_file():
            content = entry.read_bytes()
            found[entry.name] = _File(content, media_type, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
    return found
