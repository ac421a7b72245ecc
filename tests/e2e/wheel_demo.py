"""Builds the wheel, installs it into an environment of its own outside the checkout, and runs its demo there.

    python -m tests.e2e.wheel_demo

It takes minutes and downloads every dependency again, so it is a command and not a test.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NEEDED = (
    "protos/generation.proto",
    "protos/generation_pb2.py",
    "protos/generation_pb2.pyi",
    "orchestration/app.py",
    "services/gateway/page/index.html",
    "services/target/kernels/attention.c",
)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="draftfleet-wheel-") as name:
        folder = Path(name)
        print("building the wheel ...", flush=True)
        # By way of the source distribution: what an earlier build left in the checkout must not get in.
        _run([sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)], quiet=True)
        (wheel,) = folder.glob("draftfleet-*.whl")
        _check(wheel)
        print(f"installing {wheel.name} into {folder / 'venv'} ...", flush=True)
        _run([sys.executable, "-m", "venv", str(folder / "venv")])
        python = str(folder / "venv" / "bin" / "python")
        _run([python, "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"), str(wheel)])
        elsewhere = folder / "elsewhere"
        elsewhere.mkdir()
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        where = "import orchestration, services; print(orchestration.__file__, services.__file__)"
        found = subprocess.run(
            [python, "-c", where], check=True, cwd=elsewhere, env=environment, capture_output=True, text=True
        ).stdout
        assert str(ROOT) not in found, f"the checkout was imported instead of the wheel: {found}"
        demo = [str(folder / "venv" / "bin" / "draftfleet"), "demo"]
        return subprocess.run(demo, check=False, cwd=elsewhere, env=environment).returncode


def _check(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    missing = [name for name in NEEDED if name not in names]
    assert not missing, f"the wheel lacks {missing}"
    foreign = sorted(name for name in names if name.startswith(("tests/", "k8s/")))
    assert not foreign, f"the wheel holds {foreign[:3]}"


def _run(command: list[str], quiet: bool = False) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL if quiet else None)


if __name__ == "__main__":
    sys.exit(main())
