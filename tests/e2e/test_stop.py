"""Ctrl-C drains and leaves nothing, whenever it comes. With a tiny model from a GGUF file, which starts faster."""

from __future__ import annotations

import signal
import threading

import psutil
import pytest

from orchestration.cli.client import Client
from orchestration.cli.requests import Controls, text_request
from orchestration.ports import check_port_free
from tests.e2e.service import Service, serving
from tests.unit.models import tiny_gguf


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("model")
    gguf = tiny_gguf.write(folder / "tiny.gguf")
    # A busy machine may need longer for the answer that is to end in peace.
    return ["--target", str(gguf), "--set", f"model.cache_dir={folder / 'cache'}", "--set", "engine.drain_s=18"]


def assert_nothing_left(service: Service) -> None:
    assert service.processes() == []
    for address in (service.http_url.removeprefix("http://"), service.grpc_address):
        check_port_free("port", "127.0.0.1", int(address.rsplit(":", 1)[1]))


def test_ctrl_c_lets_a_running_answer_end(tiny: list[str]) -> None:
    with serving(*tiny) as service:
        ready = service.wait_for("ready:")
        assert ready.startswith("ready: tiny on ")
        assert len(service.processes()) > 5
        begun = threading.Event()
        tokens: list[int] = []

        def stream() -> None:
            request = text_request("hello", Controls(max_tokens=300))
            request.sampling.ignore_eos = True
            with Client(service.grpc_address) as client:
                for chunk in client.generate(request):
                    tokens.extend(chunk.token_ids)
                    begun.set()

        reader = threading.Thread(target=stream)
        reader.start()
        assert begun.wait(60)
        assert service.interrupt() == 0
        reader.join(10)
        assert len(tokens) == 300
        assert "stopped" in service.said[-1]
        assert_nothing_left(service)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_starting(tiny: list[str], number: int) -> None:
    with serving(*tiny) as service:
        service.wait_for("starting the replicas")
        assert service.interrupt(number) != 0
        assert not any("Traceback" in line for line in service.said)
        assert_nothing_left(service)


def test_kill_9_of_the_command_takes_everything_along(tiny: list[str]) -> None:
    with serving(*tiny) as service:
        service.wait_for("ready:")
        before = service.processes()
        service.interrupt(signal.SIGKILL)
        _, alive = psutil.wait_procs(before, timeout=120)
        assert alive == []
