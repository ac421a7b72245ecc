"""Options of the test run."""

from __future__ import annotations

import pytest
from hypothesis import settings

# A busy machine is no mistake of the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tokens", default=8, type=int, help="tokens that each answer of the identity suite is followed")
