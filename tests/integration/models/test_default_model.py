"""The real default model, fetched the first time that it is needed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from services.models.source import resolve
from services.models.tokenizer import chat_ids, eos_ids, load_tokenizer


@pytest.fixture(scope="module")
def folder() -> Path:
    return resolve("default").path


def test_the_tokenizer_is_the_published_one(folder: Path) -> None:
    tokenizer = load_tokenizer(folder)
    assert len(tokenizer) == 49152
    assert tokenizer("x=10;\n\n\n  def f(a1):")["input_ids"] == [
        104, 45, 33, 32, 43, 1116, 3805, 753, 275, 24, 81, 33, 727,
    ]  # fmt: skip
    assert tokenizer("in 1984,  42 cats")["input_ids"] == [254, 216, 33, 41, 40, 36, 28, 256, 36, 34, 7680]
    assert [tokenizer.convert_tokens_to_ids(t) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")] == [0, 1, 2]
    assert eos_ids(folder, tokenizer) == {2}
    assert tokenizer.model_max_length == 8192


def test_a_chat_is_framed_by_single_special_tokens(folder: Path) -> None:
    ids = chat_ids(load_tokenizer(folder), [{"role": "user", "content": "Hello world"}])
    assert ids == [
        1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182, 2,
        198, 1, 4093, 198, 19556, 905, 2, 198, 1, 520, 9531, 198,
    ]  # fmt: skip


def test_it_knows_the_capital_of_france(folder: Path) -> None:
    tokenizer = load_tokenizer(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype == torch.bfloat16
    assert model.lm_head.weight is model.model.embed_tokens.weight
    ids = torch.tensor([chat_ids(tokenizer, [{"role": "user", "content": "What is the capital of France?"}])])
    answer = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=20, do_sample=False)
    assert tokenizer.decode(answer[0][ids.shape[1] :]) == "The capital of France is Paris.<|im_end|>"
