"""The command, run as a user runs it, where no service is needed."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from orchestration.ports import free_ports

COMMAND = str(Path(sys.executable).with_name("draftfleet"))


def run(*arguments: str, expect: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == expect, done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_help_names_every_command() -> None:
    said = run("--help").stdout
    for command in ("serve", "demo", "generate", "chat", "status", "costs", "models", "doctor", "config", "bench"):
        assert command in said


def test_settings_are_shown_and_checked() -> None:
    shown = yaml.safe_load(run("config", "show", "--set", "engine.threads=3").stdout)
    assert shown["engine"]["threads"] == 3
    said = run("config", "show", "--set", "engine.thread=3", expect=1)
    assert "did you mean engine.threads?" in said.stderr
    assert json.loads(run("config", "schema").stdout)["title"] == "FleetConfig"


@pytest.mark.parametrize("command", [("generate", "hi", "--address"), ("chat", "hi", "--address")])
def test_a_service_that_is_away_is_told(command: tuple[str, ...]) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    assert f"nothing answers at {address}" in " ".join(run(*command, address, expect=1).stderr.split())


def test_the_bench_tells_an_endpoint_that_is_away_and_options_that_do_not_go_together(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    said = run("bench", "run", "--url", f"grpc://{address}", expect=1).stderr
    assert f"no draftfleet answers at {address}" in " ".join(said.split())
    trace = tmp_path / "trace"
    trace.write_text("0\n")
    for arguments, told in (
        (("run", "--request-rate", "1", "--trace", str(trace)), "give one of them"),
        (("run", "--request-rate", "1", "-c", "1", "-c", "2"), "bounds an open loop"),
        (("run", "--request-rate", "-1"), "request_rate"),
        (("run", "--output", "result.txt"), "must end in .json"),
        (("run", "--url", "127.0.0.1:8000"), "is no endpoint"),
        (("ab", "-a", "drafters=none"), "KEY=VALUE with KEY one of"),
        (("compare", str(trace), str(trace)), "no result of `draftfleet bench`"),
    ):
        assert told in " ".join(run("bench", *arguments, expect=1).stderr.split())


@pytest.mark.parametrize("command", ["status", "costs"])
def test_status_of_nothing_fails_clearly(command: str) -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    assert f"no service answers at {url}" in run(command, "--url", url, expect=1).stderr


def test_the_doctor_looks_at_this_machine() -> None:
    checks = {check["name"]: check for check in json.loads(run("doctor", "--json").stdout)}
    assert {"Python", "memory", "torch", "ray", "C compiler", "GPU", "HTTP port", "default model"} <= checks.keys()
    assert not [check for check in checks.values() if check["level"] == "fail"]


def test_a_wrong_target_stops_serve_before_anything_starts() -> None:
    said = run("serve", "--target", "./no-such-model", expect=1).stderr
    assert "it must be 'default', a folder in transformers format" in " ".join(said.split())


def test_a_taken_port_stops_serve_before_anything_starts() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        said = " ".join(run("serve", "--http-port", str(port), expect=1).stderr.split())
    assert f"serve.http_port: port {port} of 127.0.0.1 cannot be used" in said


def test_models_of_an_empty_cache(tmp_path: Path) -> None:
    assert "draftfleet models fetch" in run("models", "list", "--cache-dir", str(tmp_path)).stdout
