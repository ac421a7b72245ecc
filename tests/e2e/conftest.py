"""One running service with the default model for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from services.models.source import resolve
from tests.e2e.service import Service, serving


@pytest.fixture(scope="package")
def service() -> Iterator[Service]:
    resolve("default")  # the download has its own time
    with serving() as running:
        running.wait_for("ready:")
        yield running
