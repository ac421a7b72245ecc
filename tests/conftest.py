"""Options of the test run."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tokens", default=16, type=int, help="tokens that each answer of the identity suite is followed")
