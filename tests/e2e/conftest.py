"""One running service with the default model and every kind of drafter for all tests of this folder."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from services.drafters.neural.shipped import shipped_weights
from services.models.source import resolve
from tests.e2e.service import START_TIMEOUT_S, Service, serving
from tests.unit.drafters.neural.untrained import save_untrained

KINDS = {"lookup", "mtp", "dfly"}


@pytest.fixture(scope="package", autouse=True)
def interruptible() -> None:
    """A run that a shell started in the background ignores Ctrl-C, and so would what it starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="package")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    target = resolve("default")  # the download has its own time
    untrained = save_untrained(target.path, tmp_path_factory.mktemp("untrained"))
    weights = {kind: shipped_weights(kind, target.name) or folder for kind, folder in untrained.items()}
    settings = [f"drafters.{kind}.neural.weights={folder}" for kind, folder in weights.items()]
    if any(folder in untrained.values() for folder in weights.values()):
        settings.append("engine.dcut.mode=off")  # they are not worth asking, and here they have to be asked
    with serving(*(argument for setting in settings for argument in ("--set", setting))) as running:
        running.wait_for("ready:")
        deadline = time.monotonic() + START_TIMEOUT_S
        while {member["kind"] for member in running.members("drafter")} != KINDS:
            assert time.monotonic() < deadline, "not every drafter came up"
            time.sleep(0.2)
        yield running
