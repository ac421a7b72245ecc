"""What each key has in use, within its limits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from services.gateway.access.bucket import Bucket
from services.gateway.access.caller import Caller
from services.gateway.access.keyfile import MAX_KEYS
from services.gateway.access.keys import KeyRecord
from services.gateway.errors import ApiError, ErrorKind


class _Use:
    def __init__(self) -> None:
        self.active = 0
        self.requests: Bucket | None = None
        self.tokens: Bucket | None = None

    def follow(self, record: KeyRecord, now: float) -> None:
        """A limit that has changed starts anew."""
        self.requests = _followed(self.requests, record.requests_per_minute, now)
        self.tokens = _followed(self.tokens, record.tokens_per_minute, now)


def _followed(bucket: Bucket | None, limit: int | None, now: float) -> Bucket | None:
    if limit is None:
        return None
    return bucket if bucket is not None and bucket.limit == limit else Bucket(limit, now)


class Limiter:
    """Counts for one gateway replica. Belongs to one event loop."""

    def __init__(self, retry_after_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._retry_after_s = retry_after_s
        self._clock = clock
        self._uses: dict[str, _Use] = {}
        self.refused = 0

    def count_request(self, caller: Caller) -> None:
        """One more request of any kind. Raises ApiError when the key has had its share of this minute."""
        use = self._use(caller)
        if use is None or use.requests is None:
            return
        wait_s = use.requests.wait_s(self._clock())
        if wait_s > 0:
            raise self._refusal(f"this key may make {use.requests.limit} requests a minute", wait_s)
        use.requests.take(self._clock(), 1)

    @contextmanager
    def generating(self, caller: Caller, free_places: int) -> Iterator[None]:
        """For as long as a generation runs. Raises ApiError when the key has too many, or too few tokens left.

        A key may hold no more places than it leaves free: a flood under one key takes half of them at most, under
        a second half of the rest, and whoever comes next finds one.
        """
        use = self._use(caller)
        if use is None or caller.key is None:
            yield
            return
        most = caller.key.max_concurrent_requests
        if most is not None and use.active >= most:
            raise self._refusal(f"{use.active} requests of this key are in progress, the most it may have")
        if use.active >= free_places:
            raise self._refusal(
                f"{use.active} requests of this key are in progress, and only {free_places} places are left for others"
            )
        if use.tokens is not None and (wait_s := use.tokens.wait_s(self._clock())) > 0:
            raise self._refusal(f"this key may use {use.tokens.limit} tokens a minute", wait_s)
        use.active += 1
        try:
            yield
        finally:
            use.active -= 1

    def charge(self, caller: Caller, tokens: int) -> None:
        """Tokens that were read or written for the key; they may put it into debt."""
        use = self._use(caller)
        if use is not None and use.tokens is not None:
            use.tokens.take(self._clock(), tokens)

    def _use(self, caller: Caller) -> _Use | None:
        if caller.key is None:
            return None
        use = self._uses.get(caller.key.id)
        if use is None:
            if len(self._uses) >= 2 * MAX_KEYS:  # keys come from the file alone; those it has lost go
                self._uses = {key: use for key, use in self._uses.items() if use.active}
            use = self._uses[caller.key.id] = _Use()
        use.follow(caller.key, self._clock())
        return use

    def _refusal(self, message: str, wait_s: float | None = None) -> ApiError:
        self.refused += 1
        return ApiError(
            ErrorKind.RATE_LIMITED,
            f"{message}; try again later",
            retry_after_s=self._retry_after_s if wait_s is None else wait_s,
        )
