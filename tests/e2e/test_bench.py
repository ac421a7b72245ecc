"""The load generator against the running service."""

from __future__ import annotations

import json
from pathlib import Path

from orchestration.bench.result import load_result
from tests.e2e.service import Service


def test_both_doors_are_measured_and_tell_the_same(service: Service, tmp_path: Path) -> None:
    """gRPC against HTTP in one run: the same tokens, the same accepted lengths, whatever the speed."""
    output = tmp_path / "doors.json"
    done = service.cli(
        *("bench", "ab", "-a", f"url=grpc://{service.grpc_address}", "-b", f"url={service.http_url}"),
        *("--dataset", "code", "--num-prompts", "2", "--pairs", "2", "-c", "2", "--max-tokens", "24"),
        *("--drafter", "lookup", "--goodput", "e2el:600000", "--output", str(output)),
    )
    assert done.returncode == 0, done.stderr
    assert "B over A" in done.stdout
    result = load_result(output)
    (pairing,) = result.pairings
    assert (pairing.same_texts, pairing.texts) == (4, 4)
    grpc, http = (cell.total for cell in result.cells)
    assert (grpc.completed, grpc.good_share, http.good_share) == (4, 1.0, 1.0)
    assert grpc.output_tokens == http.output_tokens
    assert grpc.prompt_tokens == http.prompt_tokens
    assert grpc.drafting is not None
    assert http.drafting is not None
    for summary in (grpc, http):
        # Each answer's first token belongs to the prefill, all others to rounds.
        assert summary.drafting is not None
        assert round(summary.drafting.num_round_tokens) == summary.output_tokens - summary.completed
    assert grpc.delay is not None
    assert (tmp_path / "doors.html").read_text().startswith("<!doctype html>")

    again = service.cli("bench", "compare", str(output), str(output))
    assert again.returncode == 0, again.stderr
    assert "1.00x" in again.stdout


def test_an_open_loop_of_plain_decoding(service: Service, tmp_path: Path) -> None:
    output = tmp_path / "open.json"
    done = service.cli(
        *("bench", "run", "--url", f"grpc://{service.grpc_address}", "--request-rate", "20", "--num-prompts", "4"),
        *("--max-tokens", "8", "--ignore-eos", "--drafter", "none", "--save-detailed", "--output", str(output)),
    )
    assert done.returncode == 0, done.stderr
    (cell,) = json.loads(output.read_text())["cells"]
    assert (cell["total"]["completed"], cell["total"]["output_tokens"]) == (4, 32)
    assert cell["total"]["drafting"]["num_draft_tokens"] == 0
    assert [len(request["token_times"]) for request in cell["requests"]] == [8] * 4


def test_mistakes_of_the_bench_are_told(service: Service) -> None:
    url = f"grpc://{service.grpc_address}"
    for arguments, told in (
        (("--dataset", "prose"), "it must be one of chat, code, maths, mixed"),
        (("--goodput", "ttft"), "it must be NAME:MS"),
        (("--drafter", "magic"), "every warm-up request of run failed"),
        (("--model", "other"), f"{service.grpc_address} refuses: "),
    ):
        done = service.cli("bench", "run", "--url", url, *arguments)
        assert done.returncode == 1
        assert told in " ".join(done.stderr.split())
