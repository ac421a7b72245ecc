"""The commands against a running service."""

from __future__ import annotations

import json
from pathlib import Path

import httpx

from tests.e2e.prompts import CODE
from tests.e2e.service import Service


def test_ready_means_ready(service: Service) -> None:
    assert httpx.get(f"{service.http_url}/readyz", trust_env=False).status_code == 200


def test_status_tells_every_replica(service: Service) -> None:
    done = service.cli("status", "--url", service.http_url, "--json")
    assert done.returncode == 0, done.stderr
    status = json.loads(done.stdout)
    assert {member["role"] for member in status["members"]} == {"gateway", "router", "target", "drafter"}
    assert status["model"]["name"] == "SmolLM2-135M-Instruct"
    assert status["model"]["exactness"] in ("bitwise", "ties")
    assert "lookup" in status["model"]["drafters"]
    told = service.cli("status", "--url", service.http_url)
    assert "SmolLM2-135M-Instruct" in told.stdout
    assert status["model"]["exactness"] in told.stdout


def test_costs_are_told_and_drawn(service: Service, tmp_path: Path) -> None:
    service.cli("chat", CODE, "--address", service.grpc_address, "--max-tokens", "48")
    (target,) = json.loads(service.cli("status", "--url", service.http_url, "--json").stdout)["dcut"]
    assert target["counters"]["offered"] > 0
    assert target["counters"]["failures"] == 0
    plot = tmp_path / "costs.png"
    done = service.cli("costs", "--url", service.http_url, "--plot", str(plot))
    assert done.returncode == 0, done.stderr
    assert "rows" in done.stdout
    assert plot.exists() or "matplotlib is not installed" in done.stderr


def test_chat_with_and_without_drafts_says_the_same(service: Service) -> None:
    common = ("chat", CODE, "--address", service.grpc_address, "--max-tokens", "96")
    drafted, plain = service.cli(*common), service.cli(*common, "--drafter", "none")
    assert drafted.returncode == plain.returncode == 0, drafted.stderr + plain.stderr
    assert "merge_intervals" in plain.stdout
    assert drafted.stdout == plain.stdout
    assert "drafts accepted" in drafted.stderr
    assert "no drafts" in plain.stderr


def test_seeded_sampling_is_the_same_with_drafts(service: Service) -> None:
    common = ("generate", "1 2 3 4 1 2 3 4 1 2 3 4", "--address", service.grpc_address)
    sampled = (*common, "--max-tokens", "48", "--temperature", "0.9", "--top-p", "0.95", "--seed", "7", "--no-stats")
    drafted, plain = service.cli(*sampled), service.cli(*sampled, "--drafter", "none")
    assert drafted.returncode == 0, drafted.stderr
    assert drafted.stdout == plain.stdout
    other = service.cli(*sampled[:-2], "8", "--no-stats")
    assert other.stdout != plain.stdout


def test_show_drafts_keeps_the_text(service: Service) -> None:
    common = ("chat", CODE, "--address", service.grpc_address, "--max-tokens", "48")
    painted, plain = service.cli(*common, "--show-drafts"), service.cli(*common)
    assert painted.returncode == 0, painted.stderr
    assert "accepted · bonus · rejected · plain" in painted.stderr
    # Without colours, rejected drafts are extra text; everything else is there in order.
    at = 0
    for character in plain.stdout.strip():
        at = painted.stdout.index(character, at) + 1


def test_generate_continues_a_text(service: Service) -> None:
    done = service.cli("generate", "Once upon a time", "--address", service.grpc_address, "-n", "8")
    assert done.returncode == 0
    assert done.stdout.strip()


def test_mistakes_are_told_and_the_service_goes_on(service: Service) -> None:
    done = service.cli("generate", "hi", "--address", service.grpc_address, "--drafter", "magic")
    assert done.returncode == 1
    assert "it must be one of auto, mtp, dfly, lookup, none" in done.stderr
    assert service.cli("generate", "hi", "--address", service.grpc_address, "-n", "4").returncode == 0
