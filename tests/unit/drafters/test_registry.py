from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from services.drafters.config import DrafterConfig
from services.drafters.neural.settings import NeuralSettings
from services.drafters.neural.shipped import shipped_weights, target_name
from services.drafters.registry import KINDS, Target, kind_of
from tests.engines import VOCABULARY, make_tiny_model
from tests.unit.drafters.neural.untrained import save_untrained


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Target:
    folder = make_tiny_model("llama", tmp_path_factory.mktemp("target") / "tiny")
    return Target(folder, "tiny", folder.parent)


def test_every_kind_builds_and_says_what_it_is(target: Target, tmp_path: Path) -> None:
    weights = save_untrained(target.folder, tmp_path)
    for name, kind in KINDS.items():
        config = DrafterConfig(kind=name, neural=NeuralSettings(weights=weights.get(name)))
        traits = kind.build(config, target if kind.has_weights else None).traits
        assert traits.kind == name
        assert (traits.vocabulary, traits.hidden_size) == ((VOCABULARY, 64) if kind.has_weights else (0, 0))


def test_without_weights_the_kind_says_so(target: Target) -> None:
    with pytest.raises(ValueError, match="weights: none are shipped for tiny; name a checkpoint folder of kind mtp"):
        KINDS["mtp"].build(DrafterConfig(kind="mtp"), target)
    with pytest.raises(ValueError, match="kind: dfly needs a target"):
        KINDS["dfly"].build(DrafterConfig(kind="dfly"))


def test_weights_are_found_by_name_and_by_the_target_itself(target: Target, tmp_path: Path) -> None:
    save_untrained(target.folder, tmp_path / "some-model-1b")
    found = tmp_path / "some-model-1b" / "mtp"
    for name in ("Some-Model-1B", "some_model 1b", "Some-Model-1B.Q4_1"):
        assert shipped_weights("mtp", name, root=tmp_path) == found
    for name in ("Some-Model-1", "Some-Model-13B", "Other"):
        assert shipped_weights("mtp", name, root=tmp_path) is None
    assert shipped_weights("mtp", "renamed", target.folder, root=tmp_path) == found
    assert shipped_weights("lookup", "Some-Model-1B", root=tmp_path) is None
    file = shutil.copytree(target.folder, tmp_path / "tuned") / "model.safetensors"
    tensors = load_file(file)
    tensors["model.norm.weight"] += 0.01
    save_file(tensors, file, metadata={"format": "pt"})
    assert shipped_weights("mtp", "renamed", file.parent, root=tmp_path) is None


def test_the_name_of_a_target() -> None:
    assert target_name("default") == "SmolLM2-135M-Instruct"
    assert target_name("owner/Some-Model") == "Some-Model"
    assert target_name("/models/Some-Model.Q4_1.gguf") == "Some-Model.Q4_1"


def test_an_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="kind: 'guess' is not known; it must be one of lookup, mtp, dfly"):
        kind_of(DrafterConfig(kind="guess"))


def test_a_lookup_replica_never_pays_for_torch() -> None:
    code = (
        "import sys; import services.drafters.server; from services.drafters.registry import kind_of;"
        "from services.drafters.config import DrafterConfig; c = DrafterConfig(); kind_of(c).build(c);"
        "print('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
