"""Questions of mathematics-dataset.

It was written for old releases of sympy and numpy, so it runs in a process of its own, beside an old sympy. Those of
its modules that need numpy 1 are left out.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from services.training.synthesis.evaluation import DataUnavailableError

_SEED = 1


def questions(folders: Sequence[Path], per_module: int) -> list[str]:
    """`per_module` of each module; `folders` hold the package and what it imports.

    Raises DataUnavailableError when it does not run.
    """
    environment = {"PYTHONPATH": ":".join(str(folder.resolve()) for folder in folders), "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-W", "ignore", __file__, str(per_module)]
    try:
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines()[-1:]
        raise DataUnavailableError(f"mathematics-dataset does not run: {' '.join(said)}") from error
    found: list[str] = json.loads(done.stdout)
    return found


def _flat(modules: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Callable[[], Any]]]:
    for name, module in modules.items():
        if isinstance(module, Mapping):
            yield from _flat(module, f"{prefix}{name}/")
        else:
            yield prefix + name, module


def _print_questions(per_module: int) -> None:
    from mathematics_dataset.modules import modules

    found: list[str] = []
    for name, module in sorted(_flat(modules.train(lambda entropy: entropy))):
        seed = _SEED + sum(map(ord, name))
        random.seed(seed)
        np.random.seed(seed)
        try:
            found += (str(module().question) for _ in range(per_module))
        except AttributeError as error:
            if "numpy" not in str(error):
                raise
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    _print_questions(int(sys.argv[1]))
