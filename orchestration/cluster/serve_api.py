"""Ray's REST API for Serve, behind the address of a cluster's dashboard."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import httpx

from orchestration.cluster.schema import NAME

_PATH = "/api/serve/applications/"
_TIMEOUT_S = 60.0  # the first request starts Serve
_POLL_S = 1.0


class ClusterError(RuntimeError):
    """The cluster does not answer, refuses, or could not start the service; the message says what and why."""


@dataclass(frozen=True, slots=True)
class DeploymentState:
    """One deployment: its status in Serve's words, and its replicas."""

    name: str
    status: str
    running: int
    wanted: int
    message: str
    replicas: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class ApplicationState:
    """The application; `deployed_at` tells one deployment of it from the next."""

    status: str
    message: str
    deployed_at: float
    deployments: tuple[DeploymentState, ...]

    @property
    def is_ready(self) -> bool:
        return self.status == "RUNNING" and all(d.status == "HEALTHY" for d in self.deployments)

    @property
    def progress(self) -> str:
        if not self.deployments:
            return "building the application"
        return ", ".join(f"{d.name} {d.running}/{d.wanted}" for d in self.deployments)

    def reasons(self) -> Iterator[str]:
        """What is known of why it is not ready, the last words of every deployment that is not healthy."""
        found = [(d.name, d.message) for d in self.deployments if d.status != "HEALTHY"]
        for name, message in [("application", self.message), *found]:
            lines = [line.strip() for line in message.splitlines() if line.strip()]
            if lines:
                yield f"{name}: {lines[-1]}"


class ServeApi:
    """`with ServeApi("http://head:8265", token) as api:`; its methods raise ClusterError."""

    def __init__(self, dashboard: str, token: str | None = None) -> None:
        self._dashboard = dashboard.rstrip("/")
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._client = httpx.Client(trust_env=False, timeout=_TIMEOUT_S, headers=headers)

    def __enter__(self) -> ServeApi:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def state(self) -> ApplicationState | None:
        """None while the cluster does not know the application."""
        found = self._ask("GET")["applications"].get(NAME)
        return None if found is None else _state(found)

    def deploy(
        self, schema: dict[str, Any], timeout_s: float, on_progress: Callable[[str], None] = lambda _: None
    ) -> ApplicationState:
        """Submits the application and returns when every deployment of it is healthy."""
        before = self.state()
        self._ask("PUT", schema)
        deadline = time.monotonic() + timeout_s
        shown = ""
        state = None
        while time.monotonic() < deadline:
            state = self.state()
            if state is not None and (before is None or state.deployed_at > before.deployed_at):
                if state.is_ready:
                    return state
                if state.status == "DEPLOY_FAILED":
                    raise ClusterError("\n  ".join(["the service could not be deployed", *state.reasons()]))
                if state.progress != shown:
                    shown = state.progress
                    on_progress(shown)
            time.sleep(_POLL_S)
        reasons = state.reasons() if state is not None else ()
        raise ClusterError("\n  ".join([f"the service is not healthy after {timeout_s:.0f} s", *reasons]))

    def _ask(self, method: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        try:
            reply = self._client.request(method, self._dashboard + _PATH, json=body)
            reply.raise_for_status()
            found: dict[str, Any] = reply.json() if method == "GET" else {}
        except httpx.HTTPStatusError as error:
            said = error.response.text.strip()[:2000]
            raise ClusterError(f"{self._dashboard} answers {error.response.status_code}: {said}") from error
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise ClusterError(f"no Ray dashboard answers at {self._dashboard} ({error})") from error
        return found


def _state(found: dict[str, Any]) -> ApplicationState:
    return ApplicationState(
        status=found["status"],
        message=found["message"],
        deployed_at=found["last_deployed_time_s"],
        deployments=tuple(
            DeploymentState(
                name=name,
                status=details["status"],
                running=sum(replica["state"] == "RUNNING" for replica in details["replicas"]),
                wanted=details["target_num_replicas"],
                message=details["message"],
                replicas=tuple(details["replicas"]),
            )
            for name, details in sorted(found["deployments"].items())
        ),
    )
