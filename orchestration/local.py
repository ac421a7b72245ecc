"""A whole service on this machine: a private Ray, Serve on it, and nothing left of either afterwards."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

import httpx
import psutil
import ray
from ray import serve

from orchestration.app import application
from orchestration.cluster.schema import NAME
from orchestration.config import FleetConfig
from orchestration.machine import num_cores, wanted
from orchestration.ports import check_ports_free
from orchestration.ray_auth import reread_environment, token_environment
from protos.generation_pb2 import ModelInfo

_log = logging.getLogger(__name__)

OBJECT_STORE_BYTES = 500 << 20
_MARK = "DRAFTFLEET_RUN"  # every process of a run carries it in its environment
_STOP_TIMEOUT_S = 15.0
_TELL_TIMEOUT_S = 10.0

OnStep = Callable[[str], None]


class StartupError(RuntimeError):
    """The service did not come up; the message says why and where the logs are."""


class LocalFleet:
    """`with LocalFleet(config) as fleet:` runs the service while the block does."""

    def __init__(self, config: FleetConfig, *, timeout_s: float = 300.0, on_step: OnStep = lambda _: None) -> None:
        self._config = config
        self._timeout_s = timeout_s
        self.on_step = on_step
        self._run = secrets.token_hex(8)
        self._folder: Path | None = None
        self._saved_environment: dict[str, str | None] = {}
        self._has_deployed = False

    @property
    def http_url(self) -> str:
        host = self._config.serve.http_host
        scheme = "https" if self._config.is_https else "http"
        return f"{scheme}://{_reachable(host)}:{self._config.serve.http_port}"

    @property
    def grpc_address(self) -> str:
        return f"{_reachable(self._config.gateway.host)}:{self._config.gateway.grpc_port}"

    @property
    def logs(self) -> Path | None:
        """Where Ray and the replicas log."""
        return None if self._folder is None else self._folder / "session_latest" / "logs"

    def __enter__(self) -> LocalFleet:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Returns when /readyz answers 200. Raises StartupError or PortTakenError, with nothing left running."""
        check_ports_free(self._config)
        try:
            self.on_step("starting Ray")
            self._start_ray()
            self.on_step("starting the replicas")
            self._start_serve()
            self.on_step("waiting until it answers")
            self._wait_ready()
        except Exception as error:
            reasons = "".join(f"\n  {reason}" for reason in self._failures())
            self.stop(keep_logs=True)
            raise StartupError(f"the service did not start: {error}{reasons}\nlogs: {self.logs}") from error
        except BaseException:
            self.stop()
            raise

    def stop(self, *, keep_logs: bool = False) -> None:
        """Drains, stops Serve and Ray, and ends whatever process of this run is left."""
        try:
            if ray.is_initialized():
                if self._has_deployed:
                    self.on_step("draining")
                    with _logged("draining"):
                        serve.delete(NAME)
                self.on_step("stopping Ray")
                with _logged("stopping Ray"):
                    ray.shutdown()
        finally:
            self._end_leftovers()
            self._restore_environment()
            if self._folder is not None and not keep_logs:
                shutil.rmtree(self._folder, ignore_errors=True)

    def model(self) -> ModelInfo:
        """What is served, asked behind the doors: they may want a key. Raises an error of Serve's when nobody tells."""
        handle = serve.get_deployment_handle("Gateway", NAME)
        return ModelInfo.FromString(handle.describe.remote().result(timeout_s=_TELL_TIMEOUT_S))

    def is_alive(self) -> bool:
        """Whether Ray's own processes still run."""
        running = set()
        for process in psutil.Process().children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.status() != psutil.STATUS_ZOMBIE:
                    running.add(process.name())
        return {"raylet", "gcs_server"} <= running

    def processes(self) -> list[psutil.Process]:
        """Every process of this run but this one."""
        return [process for process in psutil.process_iter() if process.pid != os.getpid() and self._is_ours(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error):
            return process.environ().get(_MARK) == self._run
        return False

    def _start_ray(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="draftfleet-"))
        self._set_environment(
            {
                _MARK: self._run,
                **token_environment(),
                "RAY_USAGE_STATS_ENABLED": "0",
                "RAY_worker_niceness": "0",  # Ray's 15 would starve the target beside any other program
            }
        )
        reread_environment()
        share = wanted(self._config)
        ray.init(
            address="local",
            num_cpus=max(share.num_cpus, num_cores()),
            resources=share.resources,
            object_store_memory=OBJECT_STORE_BYTES,
            include_dashboard=False,
            logging_level=logging.ERROR,
            log_to_driver=False,
            _temp_dir=str(self._folder),
            _node_ip_address="127.0.0.1",
        )

    def _start_serve(self) -> None:
        logging.getLogger("ray.serve").setLevel(logging.ERROR)
        serve.start(http_options=self._config.http_options())
        self._has_deployed = True
        serve.run(application(self._config), name=NAME, route_prefix="/")

    def _failures(self) -> Iterator[str]:
        """The last words of every deployment that did not come up."""
        if not self._has_deployed:
            return
        with _logged("asking Serve for the reason"):
            for name, deployment in serve.status().applications[NAME].deployments.items():
                # The message ends with the traceback of the replica that failed.
                lines = [line.strip() for line in deployment.message.splitlines() if line.strip()]
                if lines and deployment.status != "HEALTHY":
                    yield f"{name}: {lines[-1]}"

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + self._timeout_s
        last = "no answer yet"
        # Only whether it is up is asked, of our own port; its certificate names the host that clients use.
        with httpx.Client(trust_env=False, timeout=5.0, verify=False) as client:
            while time.monotonic() < deadline:
                try:
                    reply = client.get(f"{self.http_url}/readyz")
                    if reply.status_code == 200:
                        return
                    last = f"{reply.status_code} {reply.text[:200]}"
                except httpx.HTTPError as error:
                    last = str(error) or type(error).__name__
                time.sleep(0.2)
        raise TimeoutError(f"it was not ready after {self._timeout_s:.0f} s (/readyz: {last})")

    def _end_leftovers(self) -> None:
        """Ray ends its processes, but some take their time, and a crash may leave some behind."""
        _ignore_signals()  # an impatient second Ctrl-C must not leave processes behind
        leftovers = self.processes()
        _, alive = psutil.wait_procs(leftovers, timeout=3.0)
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        _, alive = psutil.wait_procs(alive, timeout=_STOP_TIMEOUT_S)
        for process in alive:
            _log.warning("process %d did not end when asked to; killing it", process.pid)
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(alive, timeout=_STOP_TIMEOUT_S)

    def _set_environment(self, values: dict[str, str]) -> None:
        for name, value in values.items():
            self._saved_environment.setdefault(name, os.environ.get(name))
            os.environ[name] = value

    def _restore_environment(self) -> None:
        for name, value in self._saved_environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._saved_environment.clear()


@contextlib.contextmanager
def _logged(what: str) -> Iterator[None]:
    """Nothing that fails on the way down may keep the rest from being stopped."""
    try:
        yield
    except Exception:
        _log.exception("%s failed", what)


def _ignore_signals() -> None:
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)


def _reachable(host: str) -> str:
    return "127.0.0.1" if host in ("0.0.0.0", "::", "") else host
