"""A real, tiny GGUF file through the conversion."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from services.models.errors import ModelUnavailableError
from services.models.gguf import convert
from services.models.progress import Progress
from services.models.tokenizer import chat_ids, eos_ids, load_tokenizer
from tests.unit.models import tiny_gguf


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gguf")
    return convert(tiny_gguf.write(folder / "tiny.gguf"), folder / "converted")


def test_weights_are_the_dequantised_ones_in_bf16(converted: Path) -> None:
    tensors = load_file(converted / "model.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    expected = torch.from_numpy(tiny_gguf.embeddings()).bfloat16()
    assert torch.equal(tensors["model.embed_tokens.weight"], expected)


def test_tied_embeddings_stay_tied(converted: Path) -> None:
    assert "lm_head.weight" not in load_file(converted / "model.safetensors")
    model = AutoModelForCausalLM.from_pretrained(converted)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert getattr(model.config, "quantization_config", None) is None


def test_the_tokenizer_encodes_as_the_model_was_trained(converted: Path) -> None:
    tokenizer = load_tokenizer(converted)
    ids = {token: index for index, token in enumerate(tiny_gguf.tokens())}
    # Digits stand alone, so the two spaces before them merge.
    assert tokenizer("hello  42")["input_ids"] == [ids["hello"], ids["ĠĠ"], ids["4"], ids["2"]]
    assert tokenizer("<|im_end|>")["input_ids"] == [2]
    text = "naïve\t“x” 你好 🙂\n"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert tokenizer.model_max_length == tiny_gguf.CONTEXT


def test_chats_and_ends(converted: Path) -> None:
    tokenizer = load_tokenizer(converted)
    ids = chat_ids(tokenizer, [{"role": "user", "content": "hello"}])
    assert tokenizer.decode(ids) == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    assert ids.count(1) == 2
    assert ids.count(2) == 1
    assert eos_ids(converted, tokenizer) == {2}


def test_other_vocabularies_keep_their_pre_tokenizer(tmp_path: Path) -> None:
    folder = convert(tiny_gguf.write(tmp_path / "tiny.gguf", pre="gpt-2"), tmp_path / "converted")
    ids = {token: index for index, token in enumerate(tiny_gguf.tokens())}
    assert load_tokenizer(folder)("  42")["input_ids"] == [ids["Ġ"], ids["Ġ"], ids["4"], ids["2"]]


def test_what_is_no_gguf_file_leaves_nothing_behind(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\0" * 64)
    with pytest.raises(ModelUnavailableError, match="cannot read this GGUF file"):
        convert(broken, tmp_path / "converted")
    assert [path.name for path in tmp_path.iterdir()] == ["broken.gguf"]


def test_progress_counts_tensors(tmp_path: Path) -> None:
    seen: list[Progress] = []
    convert(tiny_gguf.write(tmp_path / "tiny.gguf"), tmp_path / "converted", seen.append)
    assert {step.stage for step in seen} == {"convert"}
    counted = [step.done for step in seen if step.total > 1]
    assert counted == list(range(2 + 9 * tiny_gguf.LAYERS))
