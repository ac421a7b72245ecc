"""Rendezvous hashing: who serves whom, stable when others come and go."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def score(key: str, candidate: str) -> int:
    """The candidate with the highest score serves the key; the same in every process."""
    digest = hashlib.blake2b(f"{key}\0{candidate}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def subset(key: str, candidates: Iterable[str], count: int) -> list[str]:
    """The `count` best candidates for the key, best first."""
    return sorted(candidates, key=lambda candidate: score(key, candidate), reverse=True)[:count]
