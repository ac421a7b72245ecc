"""How a deployment that goes wrong is told. What Ray answers when it goes well is tested against Ray, in tests/e2e."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from orchestration.cluster import serve_api
from orchestration.cluster.schema import NAME, exact_args, serve_schema
from orchestration.cluster.serve_api import ClusterError, ServeApi
from orchestration.sources import load

SCHEMA = serve_schema(load(None, {}, {}), {})


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_api, "_POLL_S", 0.01)


def application(
    status: str, at: float, replicas: int = 0, message: str = "", deployment: str = "UPDATING"
) -> dict[str, Any]:
    return {
        "status": status,
        "message": "",
        "last_deployed_time_s": at,
        "deployments": {
            "Target": {
                "status": deployment,
                "message": message,
                "target_num_replicas": 2,
                "replicas": [{"state": "RUNNING"}] * replicas + [{"state": "STARTING"}] * (2 - replicas),
            }
        },
    }


@contextmanager
def dashboard(before: dict[str, Any] | None, *after: dict[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """Answers `before` until something is put, then the others one after another."""
    left = list(after)
    put: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            new = left[0] if len(left) == 1 else left.pop(0) if put else None
            found = new if put else before
            self._answer(200, {"applications": {} if found is None else {NAME: found}})

        def do_PUT(self) -> None:
            put.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self._answer(200 if "bad" not in put[-1] else 400, {})

        def _answer(self, status: int, tree: Any) -> None:
            body = json.dumps(tree).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", put
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_progress_is_told_until_every_deployment_is_healthy() -> None:
    steps = [
        application("DEPLOYING", 2.0),
        application("DEPLOYING", 2.0, replicas=1),
        application("RUNNING", 2.0, replicas=1),
        application("RUNNING", 2.0, replicas=2, deployment="HEALTHY"),
    ]
    told: list[str] = []
    with dashboard(None, *steps) as (url, put), ServeApi(url) as api:
        state = api.deploy(SCHEMA, 30, told.append)
    assert state.is_ready
    assert told == ["Target 0/2", "Target 1/2"]
    assert put == [SCHEMA]


def test_what_ran_before_is_not_taken_for_what_was_asked() -> None:
    old = application("RUNNING", 1.0, replicas=2, deployment="HEALTHY")
    failed = application("DEPLOY_FAILED", 2.0, message="Traceback\nValueError: no room", deployment="DEPLOY_FAILED")
    with (
        dashboard(old, old, old, failed) as (url, _),
        ServeApi(url) as api,
        pytest.raises(ClusterError, match="could not be deployed\n  Target: ValueError: no room"),
    ):
        api.deploy(SCHEMA, 30)


def test_a_deployment_that_takes_too_long_says_why() -> None:
    waiting = application("DEPLOYING", 2.0, message="1 replica waits for a GPU")
    with (
        dashboard(None, waiting) as (url, _),
        ServeApi(url) as api,
        pytest.raises(ClusterError, match=r"not healthy after 0 s\n  Target: 1 replica waits for a GPU"),
    ):
        api.deploy(SCHEMA, 0.2)


def test_a_refusal_is_told() -> None:
    with (
        dashboard(None, application("RUNNING", 1.0)) as (url, _),
        ServeApi(url) as api,
        pytest.raises(ClusterError, match="answers 400"),
    ):
        api.deploy({"bad": True}, 1)
    with ServeApi("http://127.0.0.1:1") as api, pytest.raises(ClusterError, match="no Ray dashboard answers at"):
        api.state()


def test_exact_arguments_come_to_the_same_settings() -> None:
    config = load(None, {"drafters.mtp.num_cpus": 0.25, "topology.pools": {"head": {"cpus": 8, "memory_gib": 1}}}, {})
    assert load(None, exact_args(config), {}) == config
