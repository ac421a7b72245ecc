"""An event loop in a background thread, one a process."""

from __future__ import annotations

import asyncio
import atexit
import functools
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")
_JOIN_S = 1.0


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


class LoopThread:
    """Runs coroutines for callers that have no loop of their own.

    gRPC hands the events of all loops of a process round in one queue, and one that
    has been closed makes it stumble over the others' events. So this loop is never
    closed, and there should be few of them.
    """

    def __init__(self, name: str) -> None:
        self.loop = _new_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        atexit.register(self._stop)

    def run(self, coroutine: Coroutine[Any, Any, _T], timeout_s: float) -> _T:
        """Runs it there and waits. Not to be called from the loop's own thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(timeout_s)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def _stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_JOIN_S)


@functools.cache
def drafting_loop() -> LoopThread:
    """The loop of this process's connections to drafters."""
    return LoopThread("drafting")
