"""GGUF files become ordinary transformers folders, once, in bf16."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from services.models.cache import new_folder
from services.models.errors import ModelUnavailableError
from services.models.progress import OnProgress, Progress, silent

# Part of the cached folder's name: a change of the conversion must change it.
CONVERTED = "bf16-1"

# Vocabularies whose digits are split one by one before byte-level BPE. The
# converter of transformers leaves that out, which tokenizes "  42" differently.
_INDIVIDUAL_DIGITS = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell"})


def convert(gguf: Path, folder: Path, on_progress: OnProgress = silent) -> Path:
    """Dequantises `gguf` into `folder`: config, bf16 safetensors, tokenizer, generation config.

    The folder appears whole or not at all. The caller holds the lock of its parent.
    Raises ModelUnavailableError when transformers cannot read the file.
    """
    on_progress(Progress("convert", 0, 0))
    with _transformers_reports_to(on_progress):
        try:
            model, tokenizer = _load(gguf)
        except (ValueError, KeyError, NotImplementedError, OSError) as error:
            raise ModelUnavailableError(
                f"{gguf}: transformers cannot read this GGUF file ({error}); "
                "give a folder in transformers format instead"
            ) from error
        with new_folder(folder) as scratch:
            model.save_pretrained(scratch)
            tokenizer.save_pretrained(scratch)
            for file in scratch.glob("*.safetensors"):  # written readable for the owner alone
                file.chmod((scratch / "config.json").stat().st_mode)
    on_progress(Progress("convert", 1, 1))
    return folder


def _load(gguf: Path) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    place: dict[str, Any] = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    loaded = AutoModelForCausalLM.from_pretrained(**place, dtype=torch.bfloat16)
    config = loaded.config
    # The loaded model counts as quantised and refuses to be saved; a fresh one does not.
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config.dtype = torch.bfloat16
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.load_state_dict(loaded.state_dict())
    model.tie_weights()
    tokenizer = AutoTokenizer.from_pretrained(**place)
    _restore_pre_tokenizer(gguf, tokenizer)
    tokenizer.model_max_length = config.max_position_embeddings
    eos = config.eos_token_id if config.eos_token_id is not None else tokenizer.eos_token_id
    model.generation_config = GenerationConfig(
        bos_token_id=config.bos_token_id, eos_token_id=eos, pad_token_id=config.pad_token_id
    )
    return model, tokenizer


def _restore_pre_tokenizer(gguf: Path, tokenizer: Any) -> None:
    from gguf import GGUFReader
    from tokenizers import pre_tokenizers

    field = GGUFReader(gguf).fields.get("tokenizer.ggml.pre")
    if field is None or field.contents() not in _INDIVIDUAL_DIGITS:
        return
    backend = tokenizer.backend_tokenizer
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )


@contextmanager
def _transformers_reports_to(on_progress: OnProgress) -> Iterator[None]:
    """Its own progress bars and remarks would break into the caller's display."""
    from transformers import modeling_gguf_pytorch_utils
    from transformers.utils import logging as transformers_logging

    reader: Any = modeling_gguf_pytorch_utils

    def tensors(items: Sequence[Any], **_: Any) -> Iterator[Any]:
        for done, item in enumerate(items):
            on_progress(Progress("convert", done, len(items)))
            yield item

    level = transformers_logging.get_verbosity()
    had_bars = transformers_logging.is_progress_bar_enabled()
    own_bar = reader.tqdm
    transformers_logging.set_verbosity(logging.ERROR)
    transformers_logging.disable_progress_bar()
    reader.tqdm = tensors
    try:
        yield
    finally:
        reader.tqdm = own_bar
        transformers_logging.set_verbosity(level)
        if had_bars:
            transformers_logging.enable_progress_bar()
