"""The keys that are valid now, following their file."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

from services.gateway.access.keyfile import load
from services.gateway.access.keys import KeyRecord, PresentedKey

logger = logging.getLogger(__name__)

_NOBODY = KeyRecord(id="0" * 12, name="nobody", digest="0" * 64, created=datetime.now(timezone.utc))


def _now() -> datetime:
    return datetime.now(timezone.utc)


class KeyRing:
    """Belongs to one event loop.

    A file that turns bad or goes away leaves the last good keys in force: a slip of the pen must neither
    open the door nor shut everyone out.
    """

    def __init__(
        self,
        path: Path,
        reload_s: float,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = _now,
    ) -> None:
        """Raises ValueError, naming the setting, for a file that cannot be read now."""
        self._path = path
        self._reload_s = reload_s
        self._clock = clock
        self._now = now
        self.failed_reloads = 0
        try:
            self._version = self._stat()
            self._keys = self._load()
        except (OSError, ValueError) as error:
            raise ValueError(f"keys_file: {error}") from error
        self._next_look = clock() + reload_s

    def find(self, presented: PresentedKey | None) -> KeyRecord | None:
        """The record of a key that may be used now."""
        self._follow()
        known = None if presented is None else self._keys.get(presented.id)
        record = known or _NOBODY
        is_proven = presented is not None and presented.proves(record)
        if known is None or not is_proven or record.revoked is not None:
            return None
        if record.expires is not None and record.expires <= self._now():
            return None
        return record

    def _follow(self) -> None:
        if self._clock() < self._next_look:
            return
        self._next_look = self._clock() + self._reload_s
        try:
            version = self._stat()
            if version == self._version:
                return
            self._version = version  # before reading: what is written meanwhile is read at the next look
            self._keys = self._load()
        except (OSError, ValueError) as error:
            self.failed_reloads += 1
            if self.failed_reloads == 1:
                logger.error("the key file cannot be read; the last good keys stay in force: %s", error)
            return
        self.failed_reloads = 0
        logger.info("%d API keys were read anew", len(self._keys))

    def _load(self) -> dict[str, KeyRecord]:
        return {record.id: record for record in load(self._path).keys}

    def _stat(self) -> tuple[int, int, int]:
        found = os.stat(self._path)
        return found.st_ino, found.st_mtime_ns, found.st_size
