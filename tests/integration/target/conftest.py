"""The default model, loaded once for all tests of this folder."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
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

    @cache
    def load(self, precision: Precision) -> LoadedTarget:
        ends = eos_ids(self.folder, self.tokenizer)
        return load_target(self.folder, ends, precision, torch.device("cpu"), 256, cache_root())

    @cache
    def prompts(self) -> list[tuple[int, ...]]:
        return [tuple(chat_ids(self.tokenizer, [{"role": "user", "content": text}])) for text in ALL]


@pytest.fixture(scope="session")
def default_model() -> DefaultModel:
    folder = resolve("default").path
    return DefaultModel(folder, load_tokenizer(folder))
