"""The command `draftfleet simulate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestration.cli import simulate as command
from orchestration.cli.failure import Failure

SHORT = ["seconds=3", "warm_up_s=1", "work.concurrency=2"]
STATUS: dict[str, Any] = {
    "dcut": [
        {
            "lines": [{"context": 256, "prefill": 0, "rows": [1, 8], "expected_ms": [10.0, 12.0]}],
            "waits": [{"kind": "mtp", "terms_ms": [1.0, 0.5, 0.1, 0.0]}],
        }
    ],
    "fleet": {
        "guidance": [
            {"kind": "mtp", "task_class": "chat", "acceptance": [0.5, 0.4]},
            {"kind": "dfly", "task_class": "chat", "acceptance": [0.9]},  # no time of it is known
        ]
    },
}


def test_policies_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "told.json"
    command.simulate(settings=SHORT, policies=["plain", "static:mtp:2", "adaptive"], output=path)
    told = json.loads(path.read_text())
    assert [outcome["policy"] for outcome in told["outcomes"]] == ["plain", "static mtp-2", "adaptive"]
    assert told["settings"]["work"]["concurrency"] == 2
    assert all(outcome["tokens_per_s"] > 0 for outcome in told["outcomes"])
    shown = capsys.readouterr().out
    assert "adaptive" in shown


def test_costs_of_a_running_service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(command, "fetch_status", lambda *_: STATUS)
    path = tmp_path / "told.json"
    command.simulate(settings=SHORT, policies=["adaptive"], like="http://127.0.0.1:1", output=path)
    settings = json.loads(path.read_text())["settings"]
    assert [(step["rows"], step["ms"]) for step in settings["target"]["steps"]] == [(1, 10.0), (8, 12.0)]
    (drafter,) = settings["drafters"]
    assert (drafter["kind"], drafter["acceptance"], drafter["cost"]["b"]) == ("mtp", {"chat": 0.5}, 0.5)


@pytest.mark.parametrize(
    ("settings", "policy", "told"),
    [
        (["target.replicas=0"], "plain", "target.replicas"),
        (["target.replica=1"], "plain", "target.replica"),
        (["nonsense"], "plain", "nonsense"),
        ([], "static:mtp", "--policy"),
        ([], "static:mtp:99", "--policy"),
    ],
)
def test_mistakes_are_told(settings: list[str], policy: str, told: str) -> None:
    with pytest.raises(Failure, match=told):
        command.simulate(settings=[*SHORT, *settings], policies=[policy])


def test_a_service_that_has_not_drafted_cannot_be_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    idle = {**STATUS, "fleet": {"guidance": []}}
    monkeypatch.setattr(command, "fetch_status", lambda *_: idle)
    with pytest.raises(Failure, match="has not drafted yet"):
        command.simulate(settings=SHORT, policies=["plain"], like="http://127.0.0.1:1")
