"""Our own checkpoints, and published ones by their tensor names; what does not fit is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from services.drafters.dfly.checkpoint import load_dfly
from services.drafters.dfly.model import DflyModel
from services.drafters.mtp.checkpoint import load_mtp
from services.drafters.mtp.model import MtpModel
from services.drafters.neural.checkpoint import save_checkpoint
from services.drafters.neural.frozen import TargetFolder
from tests.engines import VOCABULARY, make_tiny_model
from tests.unit.drafters.neural.untrained import save_untrained

HIDDEN, FED, HEADS, KV_HEADS, SIZE = 64, 80, 4, 2, 16
CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3DFlyModel"],
    "hidden_size": HIDDEN,
    "intermediate_size": FED,
    "head_dim": SIZE,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "vocab_size": VOCABULARY,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 512,
    "rope_theta": 1000000,
    "num_target_layers": 2,
    "target_hidden_size": HIDDEN,
    "target_num_hidden_layers": 3,
    "target_layer_ids": [0, 2],
    "mask_token_id": 11,
    "tie_word_embeddings": False,
    "enable_hidden_correction": True,
    "hidden_correction_intermediate_size": None,
    "block_size": 8,
}
MTP_CONFIG = {key: CONFIG[key] for key in list(CONFIG)[1:11]} | {"draft_input_postnorm": True}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> TargetFolder:
    return TargetFolder(make_tiny_model("qwen3", tmp_path_factory.mktemp("target") / "tiny"))


def layer_tensors(prefix: str) -> dict[str, torch.Tensor]:
    shapes = {
        "input_layernorm": (HIDDEN,),
        "post_attention_layernorm": (HIDDEN,),
        "self_attn.q_proj": (HEADS * SIZE, HIDDEN),
        "self_attn.k_proj": (KV_HEADS * SIZE, HIDDEN),
        "self_attn.v_proj": (KV_HEADS * SIZE, HIDDEN),
        "self_attn.o_proj": (HIDDEN, HEADS * SIZE),
        "self_attn.q_norm": (SIZE,),
        "self_attn.k_norm": (SIZE,),
        "mlp.gate_proj": (FED, HIDDEN),
        "mlp.up_proj": (FED, HIDDEN),
        "mlp.down_proj": (HIDDEN, FED),
    }
    return {f"{prefix}{name}.weight": torch.randn(shape, dtype=torch.bfloat16) for name, shape in shapes.items()}


def dfly_tensors() -> dict[str, torch.Tensor]:
    own = {
        "embed_tokens.weight": (VOCABULARY, HIDDEN),
        "lm_head.weight": (VOCABULARY, HIDDEN),
        "context_proj.weight": (HIDDEN, 2 * HIDDEN),
        "context_norm.weight": (HIDDEN,),
        "layer_fusion_weights": (2, 2),
        "final_norm.weight": (HIDDEN,),
        "hidden_correction.hidden_norm.weight": (HIDDEN,),
        "hidden_correction.embed_norm.weight": (HIDDEN,),
        "hidden_correction.gate_proj.weight": (HIDDEN, 2 * HIDDEN),
        "hidden_correction.up_proj.weight": (HIDDEN, 2 * HIDDEN),
        "hidden_correction.down_proj.weight": (HIDDEN, HIDDEN),
        "markov_head.weight": (3, 3),
        "confidence_head.weight": (1, 3),
    }
    tensors = {name: torch.randn(shape, dtype=torch.bfloat16) for name, shape in own.items()}
    tensors["d2t"] = torch.arange(VOCABULARY)
    return tensors | layer_tensors("layers.0.") | layer_tensors("layers.1.")


def mtp_tensors(prefix: str, last_norm: str, layer: str = "") -> dict[str, torch.Tensor]:
    outer = {"enorm": (HIDDEN,), "hnorm": (HIDDEN,), "eh_proj": (HIDDEN, 2 * HIDDEN), last_norm: (HIDDEN,)}
    tensors = {f"{prefix}{name}.weight": torch.randn(shape, dtype=torch.bfloat16) for name, shape in outer.items()}
    return tensors | layer_tensors(prefix + layer)


def write(folder: Path, config: dict[str, Any], tensors: dict[str, torch.Tensor], form: str = "safetensors") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if form == "bin":
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("form", ["bin", "safetensors"])
@pytest.mark.parametrize("prefix", ["", "model.", "module.draft_model."])
def test_a_published_dfly(target: TargetFolder, tmp_path: Path, form: str, prefix: str) -> None:
    tensors = dfly_tensors()
    model = load_dfly(write(tmp_path, CONFIG, {prefix + n: t for n, t in tensors.items()}, form), target)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, tensors[name].float()), name
    assert model.mask_embedding is None
    assert model.config.has_qk_norm
    assert (model.config.block_size, model.config.target_layer_ids, model.config.rope_theta) == (8, (0, 2), 1e6)
    assert model.vocabulary.head_UD.shape == (VOCABULARY, HIDDEN)
    wanted = target.tensor("model.embed_tokens.weight", torch.float32)
    assert torch.equal(model.vocabulary.embedding_VD, wanted), "embeddings are the target's, not the file's copy"


def test_nested_settings_of_a_published_dfly(target: TargetFolder, tmp_path: Path) -> None:
    config = {key: value for key, value in CONFIG.items() if key not in ("mask_token_id", "target_layer_ids")}
    config["dflash_config"] = {"mask_token_id": 12, "target_layer_ids": [1, 2]}
    found = load_dfly(write(tmp_path, config, dfly_tensors()), target).config
    assert (found.mask_token_id, found.target_layer_ids) == (12, (1, 2))


@pytest.mark.parametrize("form", ["bin", "safetensors"])
@pytest.mark.parametrize(
    ("prefix", "layer"), [("model.layers.3.", ""), ("mtp.", ""), ("mtp.", "layers.0."), ("model.mtp.layers.0.", "")]
)
@pytest.mark.parametrize("last_norm", ["final_layernorm", "shared_head.norm"])
def test_a_published_mtp(
    target: TargetFolder, tmp_path: Path, form: str, prefix: str, layer: str, last_norm: str
) -> None:
    tensors = mtp_tensors(prefix, last_norm, layer)
    extra = {f"{prefix}embed_tokens.weight": torch.zeros(2, 2), f"{prefix}shared_head.head.weight": torch.zeros(2, 2)}
    beside = layer_tensors("model.layers.0.") if prefix == "model.layers.3." else {}  # a whole target's checkpoint
    model = load_mtp(write(tmp_path, MTP_CONFIG, tensors | extra | beside, form), target)
    for name, parameter in model.named_parameters():
        inner = name.replace("layer.", layer).replace("final_layernorm", last_norm)
        assert torch.equal(parameter, tensors[prefix + inner].float()), name
    assert model.config.draft_input_postnorm


Change = Callable[[dict[str, Any]], None]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("intermediate_size", 96, r"intermediate_size is 96 but layers.0.mlp.gate_proj.weight has size 80"),
        ("num_key_value_heads", 4, r"num_key_value_heads x head_dim is 64 but layers.0.self_attn.k_proj.weight has"),
        (
            "num_hidden_layers",
            3,
            r"num_hidden_layers is 3 but layer_fusion_weights has size 2 there; the tensor layers",
        ),
        ("hidden_correction_intermediate_size", 32, r"intermediate_size is 32 but hidden_correction.gate_proj"),
        ("target_layer_ids", [0, 1, 2], r"num_target_layers is 2, but target_layer_ids has 3"),
        ("target_layer_ids", [0, 3], r"target_layer_ids: \[0, 3\] must ascend, from 0 to at most 2"),
        ("hidden_size", 128, r"target_hidden_size is 64, but hidden_size is 128"),
        ("vocab_size", 99, r"vocab_size is 99, but the target's is 320"),
        ("target_num_hidden_layers", 36, r"target_num_hidden_layers is 36, but the target has 3"),
        ("mask_token_id", 5000, r"mask_token_id: 5000 is out of range"),
        ("mask_token_id", None, r"config.json lacks mask_token_id"),
        ("head_dim", 32, r"num_attention_heads x head_dim is 128 but layers.0.self_attn.q_proj.weight has size 64"),
        ("rope_scaling", {"rope_type": "yarn"}, r"rope_type 'yarn' is not supported"),
    ],
)
def test_a_setting_that_does_not_fit_is_named(
    target: TargetFolder, tmp_path: Path, key: str, value: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        load_dfly(write(tmp_path, CONFIG | {key: value}, dfly_tensors()), target)


def test_missing_and_unknown_tensors_are_named(target: TargetFolder, tmp_path: Path) -> None:
    tensors = dfly_tensors()
    del tensors["context_norm.weight"]
    with pytest.raises(ValueError, match=r"the tensor context_norm\.weight is missing"):
        load_dfly(write(tmp_path / "a", CONFIG, tensors), target)
    with pytest.raises(ValueError, match=r"the tensors \['surprise'\] are not known"):
        load_dfly(write(tmp_path / "b", CONFIG, dfly_tensors() | {"surprise": torch.zeros(1)}), target)
    with pytest.raises(ValueError, match=r"there must be one eh_proj\.weight; there are 0"):
        load_mtp(write(tmp_path / "c", MTP_CONFIG, dfly_tensors()), target)
    (write(tmp_path / "d", CONFIG, dfly_tensors()) / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="has neither"):
        load_dfly(tmp_path / "d", target)


def test_a_bin_file_runs_no_code(target: TargetFolder, tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> tuple[Callable[..., object], tuple[str, str]]:
            return Path.write_text, (tmp_path / "ran", "harm")  # type: ignore[return-value]

    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    torch.save({"context_proj.weight": Harmful()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"pytorch_model\.bin cannot be read without running code"):
        load_dfly(tmp_path, target)
    assert not (tmp_path / "ran").exists()


def test_our_own_come_back_as_they_were_saved(target: TargetFolder, tmp_path: Path) -> None:
    folders = save_untrained(target.folder, tmp_path)
    loaded: list[MtpModel | DflyModel] = [load_mtp(folders["mtp"], target), load_dfly(folders["dfly"], target)]
    for kind, model in zip(("mtp", "dfly"), loaded, strict=True):
        again = tmp_path / f"again-{kind}" / kind
        for _ in range(2):  # over one that is there, too
            save_checkpoint(again, model.config, model, {"made": "here"})
        for name in ("config.json", "model.safetensors"):
            assert (again / name).read_bytes() == (folders[kind] / name).read_bytes()
        assert list(again.parent.iterdir()) == [again], "nothing is left beside it"


def test_a_reduced_vocabulary_is_stored_with_the_weights(target: TargetFolder, tmp_path: Path) -> None:
    model = load_mtp(save_untrained(target.folder, tmp_path)["mtp"], target)
    ids = torch.arange(5, 205, 2)
    config = model.config.model_copy(update={"draft_vocab_size": len(ids)})
    small = MtpModel(config, target.parts(torch.float32), ids)
    save_checkpoint(tmp_path / "small", config, small, {})
    found = load_mtp(tmp_path / "small", target)
    assert torch.equal(found.vocabulary.d2t, ids)
    assert torch.equal(found.vocabulary.head_UD, model.vocabulary.head_UD[ids])
    broken = config.model_copy(update={"draft_vocab_size": 99})
    save_checkpoint(tmp_path / "broken", broken, small, {})
    with pytest.raises(ValueError, match="draft_vocab_size is 99 but d2t is of 100 ids"):
        load_mtp(tmp_path / "broken", target)
