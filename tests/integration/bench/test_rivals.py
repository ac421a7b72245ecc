"""What stands between a rival and the load generator: its server, its process, its weights."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFReader
from transformers import AutoModelForCausalLM

from orchestration.bench.endpoints.client import connect, text_hash
from orchestration.bench.options import build_arm
from orchestration.bench.prompts import Prompt
from orchestration.bench.record import Record
from orchestration.bench.rivals.f16 import write_f16
from orchestration.bench.rivals.recipes import OWN_PYTHON, RIVALS, Serving
from orchestration.bench.rivals.server_process import ServerError, serving
from orchestration.ports import free_ports
from services.models.gguf import convert
from services.models.tokenizer import load_tokenizer
from tests.unit.models import tiny_gguf

NUM_TOKENS = 12


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gguf.write(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(scope="module")
def folder(gguf: Path) -> Path:
    return convert(gguf, gguf.parent / "converted")


def test_llama_cpp_gets_the_very_weights_of_the_target(gguf: Path, folder: Path) -> None:
    path = write_f16(gguf, gguf.parent / "f16.gguf")
    before, after = GGUFReader(gguf), GGUFReader(path)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    tensors = {tensor.name: tensor for tensor in after.tensors}
    assert tensors.keys() == {tensor.name for tensor in before.tensors}
    embeddings = torch.from_numpy(tensors["token_embd.weight"].data.copy())
    assert embeddings.dtype == torch.float16
    served = model.model.embed_tokens.weight.detach()
    is_normal = served.abs() > 6.2e-5  # below, F16 has fewer digits than bf16
    assert torch.equal(embeddings[is_normal].float(), served[is_normal].float())
    assert tensors["output_norm.weight"].tensor_type == GGMLQuantizationType.F32
    for name, field in before.fields.items():
        if not name.startswith("GGUF.") and name != "general.file_type":
            assert np.array_equal(after.fields[name].contents(), field.contents()), name


async def ask(url: str, **fields: object) -> Record:
    arm = build_arm({"url": url, "api": "completions", "max_tokens": NUM_TOKENS, **fields})
    client = connect(arm, 60.0)
    try:
        await client.describe()
        return await client.run(Prompt("p/0", "hello hello hello hello"), 0.0)
    finally:
        await client.close()


async def test_transformers_is_served_as_it_generates(folder: Path, tmp_path: Path) -> None:
    """Plain and with prompt lookup: the tokens of `generate`, streamed with their number."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    tokenizer = load_tokenizer(folder)
    prompt = tokenizer("hello hello hello hello", return_tensors="pt")
    model.generation_config.eos_token_id = None
    expected = model.generate(**prompt, do_sample=False, max_new_tokens=NUM_TOKENS)[0, prompt["input_ids"].shape[1] :]
    text = tokenizer.decode(expected, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    for name in ("transformers", "transformers-lookup"):
        rival = RIVALS[name]
        (port,) = free_ports(1)
        served = Serving(folder, "tiny", port, 1, 1)
        command = rival.command(OWN_PYTHON, served)
        with serving(command, rival.variables(served), port, tmp_path / "log") as url:
            record = await ask(url, ignore_eos=True)
        assert (record.error, record.error_text) == ("", "")
        assert (record.num_tokens, record.finish, record.are_tokens_told) == (NUM_TOKENS, "length", True)
        assert record.prompt_tokens == prompt["input_ids"].shape[1]
        assert record.text_hash == text_hash(text)


def test_a_server_that_does_not_come_up_is_told_with_its_last_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('no weights'); raise SystemExit(3)"]
    with (
        pytest.raises(ServerError, match=r"it ended with 3:\nno weights"),
        serving(command, {}, free_ports(1)[0], tmp_path / "log"),
    ):
        raise AssertionError("it never serves")


def test_workers_of_a_server_end_with_it(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    script = (
        "import http.server, subprocess, sys\n"
        "worker = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(worker.pid, flush=True)\n"
        "class Handler(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self): self.send_response(200); self.end_headers()\n"
        f"http.server.HTTPServer(('127.0.0.1', {port}), Handler).serve_forever()\n"
    )
    with serving([sys.executable, "-c", script], {}, port, tmp_path / "log"):
        worker = psutil.Process(int((tmp_path / "log").read_text().splitlines()[0]))
        assert worker.is_running()
    worker.wait(timeout=20)


def test_every_rival_is_started_with_the_threads_it_was_given(tmp_path: Path) -> None:
    served = Serving(tmp_path / "weights", "tiny", 1234, 3, 16)
    for rival in RIVALS.values():
        command = rival.command(Path("/env/bin/python"), served)
        assert "1234" in command
        assert str(tmp_path / "weights") in command
        assert rival.variables(served)["OMP_NUM_THREADS"] == "3"
