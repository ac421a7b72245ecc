"""The digest of a model folder follows its content, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from orchestration.cli.failure import Failure
from orchestration.cli.main import app
from services.models.digest import check_digest, folder_digest
from services.models.errors import ModelUnavailableError


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(bytes(1000))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "sub" / "more").write_text("more")
    return folder


def test_content_and_names_decide(model: Path, tmp_path: Path) -> None:
    digest = folder_digest(model)
    (model / ".lock").write_text("")
    moved = shutil.copytree(model, tmp_path / "elsewhere")
    assert folder_digest(moved) == digest
    (moved / "sub" / "more").rename(moved / "more")
    assert folder_digest(moved) != digest
    (model / "model.safetensors").write_bytes(bytes(999) + b"1")
    assert folder_digest(model) != digest


def test_another_content_is_refused(model: Path) -> None:
    check_digest(model, folder_digest(model).upper())
    with pytest.raises(ModelUnavailableError, match=r"model\.sha256: the content of .* is not the expected one"):
        check_digest(model, "0" * 64)


def test_the_commands(model: Path) -> None:
    run = CliRunner()
    told = run.invoke(app, ["models", "digest", str(model)]).stdout.strip()
    assert told == folder_digest(model)
    assert run.invoke(app, ["models", "fetch", str(model), "--sha256", told]).exit_code == 0
    failed = run.invoke(app, ["models", "fetch", str(model), "--sha256", "0" * 64])
    assert isinstance(failed.exception, Failure)
