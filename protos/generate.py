"""Writes the stubs beside the .proto files: python -m protos.generate [FOLDER]."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROTOS = Path(__file__).parent


def generate(root: Path) -> None:
    """Writes `root`/protos/*_pb2*.py and .pyi. Raises CalledProcessError when protoc refuses."""
    sources = sorted(f"protos/{path.name}" for path in PROTOS.glob("*.proto"))
    plugins = Path(sys.executable).parent  # where pip put protoc-gen-mypy and protoc-gen-mypy_grpc
    environment = {**os.environ, "PATH": f"{plugins}{os.pathsep}{os.environ.get('PATH', '')}"}
    outputs = [f"--{kind}_out=quiet:{root}" for kind in ("mypy", "mypy_grpc")]
    outputs += [f"--{kind}_out={root}" for kind in ("python", "grpc_python")]
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTOS.parent}", *outputs, *sources]
    subprocess.run(command, check=True, env=environment, cwd=PROTOS.parent)


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else PROTOS.parent)
