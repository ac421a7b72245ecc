"""The default model, loaded once for all tests of this folder."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedTokenizerBase

from services.models.cache import cache_root
from services.models.source import resolve
from services.models.tokenizer import chat_ids, eos_ids, load_tokenizer
from services.target.model.loader import LoadedTarget, Precision, load_target
from tests.prompts import ALL


@dataclass(frozen=True)
class DefaultModel:
    folder: Path
    tokenizer: PreTrainedTokenizerBase
    _loaded: dict[Precision, LoadedTarget] = field(default_factory=dict)

    def load(self, precision: Precision) -> LoadedTarget:
        if precision not in self._loaded:
            ends = eos_ids(self.folder, self.tokenizer)
            cpu = torch.device("cpu")
            self._loaded[precision] = load_target(self.folder, ends, precision, cpu, 256, cache_root())
        return self._loaded[precision]

    def prompts(self) -> list[tuple[int, ...]]:
        return [tuple(chat_ids(self.tokenizer, [{"role": "user", "content": text}])) for text in ALL]


@pytest.fixture(scope="session")
def default_model() -> DefaultModel:
    torch.set_num_threads(os.cpu_count() or 1)  # other tests may have asked for one
    folder = resolve("default").path
    return DefaultModel(folder, load_tokenizer(folder))
