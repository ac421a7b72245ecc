"""The gateway's copy of the fleet's totals, which outlives the D-cut actor that adds them up."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from services.metrics.messages import Snapshot, decode_snapshot

_log = logging.getLogger(__name__)

Read = Callable[[float], Awaitable[bytes]]  # waits for reports for at most so many seconds
Restore = Callable[[bytes], Awaitable[None]]

_GRACE_S = 2.0
_EMPTY = Snapshot("", 0, True, {}, {})


@dataclass(frozen=True, slots=True)
class _Held:
    snapshot: Snapshot
    data: bytes
    at: float


class FleetTotalsView:
    """Reads the totals when asked, and now and then to have them.

    A new actor is handed what the one before it had told, and believed only once it has heard
    the whole fleet: until then the last totals are shown, so none ever falls.
    """

    def __init__(self, read: Read, restore: Restore, *, wait_s: float, period_s: float) -> None:
        """`wait_s`: longest that a look waits for the newest counts; `period_s`: between two readings of its own."""
        self._read = read
        self._restore = restore
        self._wait_s = wait_s
        self._period_s = period_s
        self._held = _Held(_EMPTY, b"", time.monotonic())
        self._task: asyncio.Task[None] | None = None
        self._has_failed = False
        self._reading = asyncio.Lock()
        self._begun_at = 0.0  # the newest reading that waited

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="fleet-totals")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def look(self) -> tuple[Snapshot, float]:
        """The totals with all that was counted before the call, where every replica answers; and their age, s."""
        await self._refresh(self._wait_s)
        return self._held.snapshot, time.monotonic() - self._held.at

    async def _run(self) -> None:
        while self._task is not None:
            await self._refresh(0.0)
            await asyncio.sleep(self._period_s)

    async def _refresh(self, wait_s: float) -> None:
        asked_at = time.monotonic()
        async with self._reading:  # in order: an older answer must not come last
            if wait_s and self._begun_at > asked_at:
                return  # what another look has waited for meanwhile will do
            begun_at = time.monotonic()
            try:
                await self._exchange(wait_s)
                self._has_failed = False
            except Exception as error:  # whatever became of the actor, the last totals stand
                if not self._has_failed:
                    _log.warning(
                        "no totals from the D-cut actor, showing the last: %s: %s", type(error).__name__, error
                    )
                self._has_failed = True
            if wait_s:
                self._begun_at = begun_at

    async def _exchange(self, wait_s: float) -> None:
        held = self._held
        data = await asyncio.wait_for(self._read(wait_s), wait_s + _GRACE_S)
        snapshot = decode_snapshot(data)
        if held.data and snapshot.actor != held.snapshot.actor:
            await asyncio.wait_for(self._restore(held.data), _GRACE_S)
            if not snapshot.is_settled:
                return
            data = await asyncio.wait_for(self._read(wait_s), wait_s + _GRACE_S)
            snapshot = decode_snapshot(data)
        self._held = _Held(snapshot, data, time.monotonic())
