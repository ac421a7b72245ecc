"""The engine's forward passes against transformers' own, on small random models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

from services.target.kv.pool import KVPool
from services.target.model.agreement import check_agreement
from services.target.model.generic import GenericDecoder
from services.target.model.layout import lay_out
from services.target.model.lean import LEAN_FAMILIES, LeanDecoder
from services.target.model.loader import LoadedTarget, load_target
from services.target.model.precision import Precision
from services.target.model.row_plan import RowPlan
from services.target.model.spec import ModelSpec
from services.target.model.step import Segment

CPU = torch.device("cpu")
SIZES: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.2,
}
GQA = {**SIZES, "num_key_value_heads": 2}
SLIDING = {"sliding_window": 12, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
LENGTH = 45


def rope(kind: str, **parameters: object) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10_000.0, **parameters}}


LEAN: dict[str, Callable[[], hf.PretrainedConfig]] = {
    "llama": lambda: hf.LlamaConfig(**GQA),
    "llama tied": lambda: hf.LlamaConfig(**GQA, tie_word_embeddings=True),
    "llama with biases": lambda: hf.LlamaConfig(**GQA, attention_bias=True),
    "llama with head size 32": lambda: hf.LlamaConfig(**GQA, head_dim=32),
    "llama with a window in its file": lambda: hf.LlamaConfig(**GQA, sliding_window=12),
    "llama linear": lambda: hf.LlamaConfig(**GQA, **rope("linear", factor=4.0)),
    "llama dynamic": lambda: hf.LlamaConfig(**GQA, **rope("dynamic", factor=4.0)),
    "llama yarn": lambda: hf.LlamaConfig(
        **GQA, **rope("yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=32.0, beta_slow=1.0)
    ),
    "llama llama3": lambda: hf.LlamaConfig(
        **GQA,
        **rope("llama3", factor=8.0, original_max_position_embeddings=32, low_freq_factor=1.0, high_freq_factor=4.0),
    ),
    "llama longrope": lambda: hf.LlamaConfig(
        **GQA,
        **rope(
            "longrope",
            original_max_position_embeddings=64,
            factor=2.0,
            short_factor=[1.0 + i / 8 for i in range(8)],
            long_factor=[2.0 + i for i in range(8)],
        ),
    ),
    "mistral": lambda: hf.MistralConfig(**GQA, sliding_window=12),
    "mistral without a window": lambda: hf.MistralConfig(**GQA, sliding_window=None),
    "qwen2": lambda: hf.Qwen2Config(**GQA),
    "qwen2 sliding": lambda: hf.Qwen2Config(**GQA, use_sliding_window=True, **SLIDING),
    "qwen3": lambda: hf.Qwen3Config(**GQA, head_dim=32),
    "qwen3 sliding": lambda: hf.Qwen3Config(**GQA, head_dim=16, use_sliding_window=True, **SLIDING),
}
GENERIC: dict[str, Callable[[], hf.PretrainedConfig]] = {
    "cohere2": lambda: hf.Cohere2Config(**GQA, **SLIDING),
    "gemma": lambda: hf.GemmaConfig(**GQA, head_dim=16),
    "gemma2": lambda: hf.Gemma2Config(**GQA, head_dim=16, query_pre_attn_scalar=16, **SLIDING),
    "gemma3": lambda: hf.Gemma3TextConfig(**GQA, head_dim=16, query_pre_attn_scalar=16, **SLIDING),
    "glm4": lambda: hf.Glm4Config(**GQA, head_dim=16),
    "gpt2": lambda: hf.GPT2Config(
        vocab_size=99, n_embd=64, n_layer=3, n_head=4, n_positions=128, bos_token_id=1, eos_token_id=2
    ),
    "gpt_neox": lambda: hf.GPTNeoXConfig(**SIZES),
    "granite": lambda: hf.GraniteConfig(**GQA, attention_multiplier=0.3),
    "mixtral": lambda: hf.MixtralConfig(**GQA, num_local_experts=4),
    "olmo2": lambda: hf.Olmo2Config(**GQA),
    "opt": lambda: hf.OPTConfig(
        vocab_size=99,
        hidden_size=64,
        ffn_dim=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=128,
        word_embed_proj_dim=64,
    ),
    "phi": lambda: hf.PhiConfig(**GQA, partial_rotary_factor=0.5),
    "phi3": lambda: hf.Phi3Config(**GQA, sliding_window=12),
    "qwen3_moe": lambda: hf.Qwen3MoeConfig(
        **GQA, head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32
    ),
    "smollm3": lambda: hf.SmolLM3Config(**GQA),
    "stablelm": lambda: hf.StableLmConfig(**GQA),
    "starcoder2": lambda: hf.Starcoder2Config(**GQA, sliding_window=12),
}
# Attention that is not causal softmax over one KV cache, or a model that hides its own from the engine.
REFUSED: dict[str, Callable[[], hf.PretrainedConfig]] = {
    "alibi": lambda: hf.BloomConfig(vocab_size=99, hidden_size=64, n_layer=2, n_head=4),
    "attention in both directions": lambda: hf.BertConfig(**SIZES),
    "attention of its own": lambda: hf.FalconConfig(
        vocab_size=99, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, alibi=True
    ),
    "attention sinks": lambda: hf.GptOssConfig(
        **GQA, head_dim=16, num_local_experts=4, layer_types=["full_attention"] * 3
    ),
    "compressed keys": lambda: hf.DeepseekV3Config(
        **SIZES,
        num_key_value_heads=4,
        kv_lora_rank=16,
        q_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=8,
    ),
    "linear attention": lambda: hf.Qwen3NextConfig(
        **GQA, head_dim=16, layer_types=["linear_attention", "full_attention", "linear_attention"]
    ),
    "no attention": lambda: hf.MambaConfig(vocab_size=99, hidden_size=64, num_hidden_layers=2),
    "encoder and decoder": lambda: hf.T5Config(vocab_size=99, d_model=64, d_kv=16, d_ff=96, num_layers=2, num_heads=4),
    "chunked attention": lambda: hf.Llama4TextConfig(**GQA, head_dim=16, intermediate_size_mlp=96, num_local_experts=2),
}


def save(config: hf.PretrainedConfig, folder: Path) -> hf.PreTrainedModel:
    torch.manual_seed(0)
    kinds = hf.AutoModelForSeq2SeqLM if config.is_encoder_decoder else hf.AutoModelForCausalLM
    model = kinds.from_config(config, attn_implementation="eager").eval()
    for name, parameter in model.named_parameters():  # biases and norms that start as 0 or 1 would hide mistakes
        if parameter.dim() == 1:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
        elif "weight" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(folder)
    return model


def load(folder: Path, precision: Precision = "fp32") -> LoadedTarget:
    kernels = folder.parent.parent  # of the whole run, so that they are compiled once
    return load_target(folder, (2,), precision, CPU, 16, kernels)


def tokens_of(length: int = LENGTH) -> list[int]:
    return torch.randint(3, 99, (length,), generator=torch.Generator().manual_seed(1)).tolist()


@torch.inference_mode()
def check(target: LoadedTarget, model: hf.PreTrainedModel) -> None:
    """A whole prompt beside another, row by row, and in chunks: each gives transformers' logits."""
    tokens = tokens_of()
    expected = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0].float()
    spec = target.spec
    pool = KVPool(spec, 12, torch.float32, CPU)
    mine, theirs = [7, 2, 5], [0, 1, 3]

    def run(*segments: Segment) -> torch.Tensor:
        return target.forward.forward(lay_out(segments, spec.heads // spec.kv_heads, CPU), pool).logits_QV

    whole = run(Segment(tokens[::-1], 0, theirs, ()), Segment(tokens, 0, mine, range(LENGTH)))
    torch.testing.assert_close(whole, expected, rtol=1e-4, atol=1e-4)
    pool = KVPool(spec, 12, torch.float32, CPU)
    steps = torch.cat([run(Segment(tokens[at : at + 1], at, mine, (0,))) for at in range(LENGTH)])
    torch.testing.assert_close(steps, expected, rtol=1e-4, atol=1e-4)
    pool = KVPool(spec, 12, torch.float32, CPU)
    chunks = [tokens[at : at + 7] for at in range(0, LENGTH, 7)]
    pieces = [run(Segment(chunk, 7 * i, mine, range(len(chunk)))) for i, chunk in enumerate(chunks)]
    torch.testing.assert_close(torch.cat(pieces), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", LEAN)
def test_lean_families(name: str, tmp_path: Path) -> None:
    config = LEAN[name]()
    model = save(config, tmp_path / "model")
    target = load(tmp_path / "model")
    assert isinstance(target.forward, LeanDecoder)
    assert config.model_type in LEAN_FAMILIES
    check(target, model)


@pytest.mark.parametrize("name", GENERIC)
def test_generic_families(name: str, tmp_path: Path) -> None:
    model = save(GENERIC[name](), tmp_path / "model")
    target = load(tmp_path / "model")
    assert isinstance(target.forward, GenericDecoder)
    check(target, model)


@pytest.mark.parametrize("name", REFUSED)
def test_families_that_cannot_work_are_refused(name: str, tmp_path: Path) -> None:
    save(REFUSED[name](), tmp_path / "model")
    with pytest.raises(ValueError, match=r"target: |Unrecognized configuration class"):
        load(tmp_path / "model")


def test_agreement_is_checked_in_half_precision_too(tmp_path: Path) -> None:
    save(GENERIC["gemma3"](), tmp_path / "good")
    assert load(tmp_path / "good", "bf16").precision == "bfloat16"
    save(REFUSED["alibi"](), tmp_path / "bad")
    with pytest.raises(ValueError, match="other logits with paged attention"):
        load(tmp_path / "bad", "bf16")


def test_a_wrong_window_is_noticed(tmp_path: Path) -> None:
    """A window longer than the check's text cannot show in logits."""
    config = hf.Gemma3TextConfig(**GQA, head_dim=16, query_pre_attn_scalar=16, **{**SLIDING, "sliding_window": 100})
    save(config, tmp_path / "model")
    decoder = load(tmp_path / "model").forward
    assert isinstance(decoder, GenericDecoder)
    wrong = {**{n: getattr(decoder.spec, n) for n in decoder.spec.__dataclass_fields__}, "windows": (0, 0, 0)}
    decoder.spec = ModelSpec(**wrong)
    with pytest.raises(ValueError, match="layer 0 wants a window of 100, its configuration 0"):
        check_agreement(decoder, torch.float32, CPU)


def test_longrope_stops_where_its_angles_change() -> None:
    spec = ModelSpec.from_config(LEAN["llama longrope"](), ())
    assert spec.max_positions == 64


@pytest.mark.parametrize("name", ["llama", "gemma3"])
@torch.inference_mode()
def test_captured_states_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    model = save((LEAN | GENERIC)[name](), tmp_path / "model")
    target = load(tmp_path / "model")
    tokens = tokens_of(20)
    out = model(input_ids=torch.tensor([tokens]), use_cache=False, output_hidden_states=True)
    pool = KVPool(target.spec, 2, torch.float32, CPU)
    segment = Segment(tokens, 0, [1, 0], (19,))
    for capture in ((1,), (0, 1), (-1,), (-1, 0, 1)):
        features = target.forward.forward(lay_out([segment], 2, CPU, capture, True), pool).features_NTD
        assert features is not None
        expected = [out.hidden_states[-1 if layer < 0 else layer + 1][0] for layer in capture]
        torch.testing.assert_close(features, torch.stack(expected, 1), rtol=1e-4, atol=1e-4)
    assert target.forward.forward(lay_out([segment], 2, CPU), pool).features_NTD is None


@torch.inference_mode()
def test_the_final_state_before_the_norm(tmp_path: Path) -> None:
    model = save(LEAN["llama"](), tmp_path / "lean")
    target = load(tmp_path / "lean")
    pool = KVPool(target.spec, 1, torch.float32, CPU)
    step = lay_out([Segment([5, 6, 7], 0, [0], range(3))], 2, CPU, (-1,), False)
    result = target.forward.forward(step, pool)
    assert result.features_NTD is not None
    logits = model.lm_head(model.model.norm(result.features_NTD[:, 0]))
    torch.testing.assert_close(logits, result.logits_QV, rtol=1e-4, atol=1e-4)
    save(GENERIC["gemma3"](), tmp_path / "generic")
    generic = load(tmp_path / "generic")
    with pytest.raises(ValueError, match="only after the final norm"):
        generic.forward.forward(step, KVPool(generic.spec, 1, torch.float32, CPU))


class TestCheckpoints:
    """What a folder may hold that the configuration does not say."""

    @staticmethod
    def edit(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors", {"format": "pt"})

    def test_a_missing_tensor_is_named(self, tmp_path: Path) -> None:
        save(LEAN["llama"](), tmp_path / "model")
        self.edit(tmp_path / "model", lambda w: w.__delitem__("model.layers.1.mlp.down_proj.weight"))
        with pytest.raises(ValueError, match=r"lacks model\.layers\.1\.mlp\.down_proj\.weight"):
            load(tmp_path / "model")

    def test_an_unknown_tensor_is_named(self, tmp_path: Path) -> None:
        save(LEAN["llama"](), tmp_path / "model")
        self.edit(tmp_path / "model", lambda w: w.__setitem__("model.layers.0.adapter.weight", torch.ones(2)))
        with pytest.raises(ValueError, match=r"does not use: .*adapter"):
            load(tmp_path / "model")

    def test_an_untied_head_must_be_there(self, tmp_path: Path) -> None:
        save(LEAN["llama"](), tmp_path / "model")
        self.edit(tmp_path / "model", lambda w: w.__delitem__("lm_head.weight"))
        with pytest.raises(ValueError, match=r"lacks lm_head\.weight"):
            load(tmp_path / "model")

    def test_a_tied_head_is_the_embedding_whatever_else_is_stored(self, tmp_path: Path) -> None:
        model = save(LEAN["llama tied"](), tmp_path / "model")
        self.edit(tmp_path / "model", lambda w: w.__setitem__("lm_head.weight", torch.ones(99, 64)))
        check(load(tmp_path / "model"), model)

    def test_another_activation_is_refused(self, tmp_path: Path) -> None:
        save(hf.LlamaConfig(**GQA, hidden_act="gelu"), tmp_path / "model")
        with pytest.raises(ValueError, match="hidden_act 'gelu' is not supported in llama"):
            load(tmp_path / "model")

    def test_a_folder_without_weights(self, tmp_path: Path) -> None:
        LEAN["llama"]().save_pretrained(tmp_path / "model")
        with pytest.raises(ValueError, match="no safetensors files"):
            load(tmp_path / "model")


def test_unknown_rope_is_refused() -> None:
    config = LEAN["llama"]()
    config.rope_parameters = {"rope_type": "spiral", "rope_theta": 1e4}
    spec = ModelSpec.from_config(config, ())
    weights = {"model.embed_tokens.weight": torch.zeros(99, 64), "model.norm.weight": torch.ones(64)}
    config.tie_word_embeddings = True
    with pytest.raises(ValueError, match="rope_type 'spiral' is not supported"):
        LeanDecoder(config, spec, weights, None, RowPlan())  # type: ignore[arg-type]
