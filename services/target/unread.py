"""What a request has produced and its caller has not read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from services.target.emission import Emission


class SlowReader(RuntimeError):
    """More waited to be read than may; the request has been ended."""


class Unread:
    """Emissions on their way from the engine's thread to one stream, in bounded memory. Belongs to one event loop."""

    def __init__(self, limit: int, on_overflow: Callable[[], None]) -> None:
        """`on_overflow` is called once, when `limit` emissions wait: it ends the request."""
        self._loop = asyncio.get_running_loop()
        self._limit = limit
        self._on_overflow = on_overflow
        self._waiting: asyncio.Queue[Emission] = asyncio.Queue()
        self._has_overflowed = False

    def sink(self, emission: Emission) -> None:
        """In the engine's thread."""
        self._loop.call_soon_threadsafe(self._add, emission)

    async def next(self) -> Emission:
        """Raises SlowReader in place of the first that was not kept."""
        if self._has_overflowed and self._waiting.empty():
            raise SlowReader(f"the answer is read too slowly: {self._limit} chunks of it waited; it has been ended")
        return await self._waiting.get()

    def _add(self, emission: Emission) -> None:
        if self._has_overflowed:
            return
        if self._waiting.qsize() < self._limit:
            self._waiting.put_nowait(emission)
        else:
            self._has_overflowed = True
            self._on_overflow()
