"""Keeps strangers out of a private Ray: whoever can reach its ports can run code."""

from __future__ import annotations

import functools
import secrets
from typing import Any


@functools.cache
def _token() -> str:
    return secrets.token_hex(32)  # one for the process, since Ray keeps the first that it reads


def token_environment() -> dict[str, str]:
    """Variables that make Ray, and the processes it starts, ask for a token that only they know."""
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": _token()}


def reread_environment() -> None:
    """Ray reads the mode when it is imported, which may have been before it was set."""
    import ray._raylet

    native: Any = ray._raylet  # a compiled module that hides most of its names from type checkers
    native.Config.initialize("")
