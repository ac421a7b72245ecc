"""The Dockerfile, which no test can build without a Docker daemon."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.k8s.rendering import K8S

DOCKERFILE = K8S / "Dockerfile"
ROOT = K8S.parent


def test_the_linter_has_nothing_to_say() -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint is not installed")
    result = subprocess.run([hadolint, str(DOCKERFILE)], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (0, "")


def test_it_runs_as_a_user_and_from_a_pinned_image() -> None:
    lines = DOCKERFILE.read_text().splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users[-1] == "1000:1000"
    (version,) = [line for line in lines if line.startswith("ARG PYTHON=")]
    assert re.fullmatch(r"ARG PYTHON=3\.11\.\d+-slim-bookworm", version)
    assert all("${PYTHON}" in line for line in lines if line.startswith("FROM "))


def test_everything_that_it_copies_is_in_its_context() -> None:
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = set()
    for line in DOCKERFILE.read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            copied |= set(line.split()[1:-1])
    assert copied == let_in
    assert all((ROOT / path).exists() for path in copied)
