"""How many requests are in progress, and no more than that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from services.gateway.access.caller import CALLER
from services.gateway.access.limits import Limiter
from services.gateway.errors import ApiError, ErrorKind


class Admission:
    """Belongs to one event loop."""

    def __init__(self, limit: int, retry_after_s: float, limiter: Limiter) -> None:
        self._limit = limit
        self._limiter = limiter
        self._retry_after_s = retry_after_s
        self.active = 0
        self.refused = 0
        self.is_draining = False

    @contextmanager
    def enter(self) -> Iterator[None]:
        """For as long as a request of the current caller runs.

        Raises ApiError when there are too many, of its key or of all together, and at shutdown.
        """
        if self.is_draining:
            self.refused += 1
            raise ApiError(ErrorKind.UNAVAILABLE, "this replica is shutting down", retry_after_s=self._retry_after_s)
        if self.active >= self._limit:
            self.refused += 1
            raise ApiError(
                ErrorKind.OVERLOADED,
                f"{self.active} requests are in progress, the most allowed; try again later",
                retry_after_s=self._retry_after_s,
            )
        with self._limiter.generating(CALLER.get(), self._limit - self.active):
            self.active += 1
            try:
                yield
            finally:
                self.active -= 1
