"""What a target may be called, and where the cache is."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from services.models.cache import cache_root, new_folder
from services.models.config import ModelConfig
from services.models.errors import ModelUnavailableError
from services.models.source import resolve
from tests.unit.models import tiny_gguf


def test_a_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    with pytest.raises(ValueError, match=r"has no config\.json"):
        resolve(str(folder))
    (folder / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"has no weights as \*\.safetensors"):
        resolve(str(folder))
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match="has no tokenizer"):
        resolve(str(folder))
    (folder / "tokenizer.json").write_text("{}")
    found = resolve(str(folder))
    assert (found.path, found.name) == (folder, "my-model")


def test_a_gguf_file_is_converted_once_and_again_when_it_changes(tmp_path: Path) -> None:
    gguf = tiny_gguf.write(tmp_path / "small.gguf")
    stages: list[str] = []
    first = resolve(str(gguf), tmp_path / "cache", lambda step: stages.append(step.stage))
    assert first.name == "small"
    assert "convert" in stages
    stages.clear()
    assert resolve(str(gguf), tmp_path / "cache", lambda step: stages.append(step.stage)) == first
    assert stages == []
    tiny_gguf.write(gguf, pre="gpt-2")
    assert resolve(str(gguf), tmp_path / "cache").path != first.path


@pytest.mark.parametrize("target", ["./nowhere", "/no/such/folder", "missing.gguf", "a/b/c", "", "~nobody/x y"])
def test_anything_else_is_a_clear_error(target: str) -> None:
    with pytest.raises(ValueError, match="it must be 'default', a folder in transformers format"):
        resolve(target)


def test_a_hub_model_that_cannot_be_reached_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelUnavailableError, match=r"no-such-owner/no-such-model.*--target"):
        resolve("no-such-owner/no-such-model")


def test_the_cache_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_root() == tmp_path / ".cache" / "draftfleet"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert cache_root() == tmp_path / "x" / "draftfleet"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_root() == tmp_path / ".cache" / "draftfleet"
    assert cache_root(Path("~/mine")) == tmp_path / "mine"


def test_a_new_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    final = tmp_path / "final"
    leftover = tmp_path / "final.partial"
    leftover.mkdir()
    (leftover / "old").touch()
    with pytest.raises(FileNotFoundError), new_folder(final) as scratch:
        (scratch / "a" / "b").touch()
    assert not final.exists()
    assert list(tmp_path.iterdir()) == []
    with new_folder(final) as scratch:
        (scratch / "a").touch()
    assert [path.name for path in final.iterdir()] == ["a"]


@pytest.mark.parametrize("wrong", [{"target": ""}, {"name": ""}, {"tarket": "x"}, {"cache_dir": 3}])
def test_wrong_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ModelConfig.model_validate(wrong)
