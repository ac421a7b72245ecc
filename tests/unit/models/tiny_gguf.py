"""A real GGUF file of a few kilobytes: a Llama with byte-level BPE that splits digits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, quants
from transformers.convert_slow_tokenizer import bytes_to_unicode

HIDDEN, LAYERS, HEADS, KV_HEADS, FEED_FORWARD, CONTEXT = 64, 2, 4, 2, 128, 4096
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = ("Ġ Ġ", "h e", "l l", "he ll", "hell o")
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokens() -> list[str]:
    letters = sorted(bytes_to_unicode().values())
    return [*SPECIAL, *letters, *(merge.replace(" ", "") for merge in MERGES)]


def embeddings() -> np.ndarray:
    """What the file holds after quantisation, [vocabulary, hidden]."""
    exact = np.random.default_rng(0).standard_normal((len(tokens()), HIDDEN), dtype=np.float32) * 0.05
    return quants.dequantize(quants.quantize(exact, GGMLQuantizationType.Q4_1), GGMLQuantizationType.Q4_1)


def write(path: Path, pre: str = "smollm") -> Path:
    writer = GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_vocab_size(len(tokens()))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens())
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens()) - len(SPECIAL)))
    writer.add_token_merges(list(MERGES))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(CHAT_TEMPLATE)

    random = np.random.default_rng(1)

    def add(name: str, *shape: int) -> None:
        writer.add_tensor(name, random.standard_normal(shape, dtype=np.float32) * 0.05)

    packed = quants.quantize(embeddings(), GGMLQuantizationType.Q4_1)
    writer.add_tensor("token_embd.weight", packed, raw_dtype=GGMLQuantizationType.Q4_1)
    writer.add_tensor("output_norm.weight", np.ones(HIDDEN, np.float32))
    kv = HIDDEN // HEADS * KV_HEADS
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        add(f"{block}attn_q.weight", HIDDEN, HIDDEN)
        add(f"{block}attn_k.weight", kv, HIDDEN)
        add(f"{block}attn_v.weight", kv, HIDDEN)
        add(f"{block}attn_output.weight", HIDDEN, HIDDEN)
        add(f"{block}ffn_gate.weight", FEED_FORWARD, HIDDEN)
        add(f"{block}ffn_up.weight", FEED_FORWARD, HIDDEN)
        add(f"{block}ffn_down.weight", HIDDEN, FEED_FORWARD)
        writer.add_tensor(f"{block}attn_norm.weight", np.ones(HIDDEN, np.float32))
        writer.add_tensor(f"{block}ffn_norm.weight", np.ones(HIDDEN, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
