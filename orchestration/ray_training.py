"""Ray for a training run: a cluster that is there, or a private one on this machine."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import ray

from orchestration.machine import num_cores
from orchestration.ray_auth import reread_environment, token_environment

_OBJECT_STORE_BYTES = 256 << 20  # only progress reports go through it


@contextmanager
def connected(address: str | None, workers: int) -> Iterator[None]:
    """Joins the cluster at `address`, or starts a private one that ends with the block."""
    if address is not None:
        ray.init(address=address)
        try:
            yield
        finally:
            ray.shutdown()
        return
    given = {**token_environment(), "RAY_USAGE_STATS_ENABLED": "0"}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    reread_environment()
    folder = tempfile.mkdtemp(prefix="draftfleet-")
    try:
        ray.init(
            address="local",
            num_cpus=max(workers + 1, num_cores()),
            object_store_memory=_OBJECT_STORE_BYTES,
            include_dashboard=False,
            logging_level=logging.ERROR,
            _temp_dir=folder,
            _node_ip_address="127.0.0.1",
        )
        yield
    finally:
        ray.shutdown()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        shutil.rmtree(folder, ignore_errors=True)
