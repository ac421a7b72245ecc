"""Who is let in: what both doors ask before anything else."""

from __future__ import annotations

from services.gateway.access.caller import ANYONE, Caller
from services.gateway.access.config import AccessConfig
from services.gateway.access.keys import PresentedKey
from services.gateway.access.limits import Limiter
from services.gateway.access.ring import KeyRing
from services.gateway.errors import ApiError, ErrorKind

_SCHEME = "bearer"


class Guard:
    """Belongs to one event loop."""

    def __init__(self, config: AccessConfig, limiter: Limiter) -> None:
        """Raises ValueError for a key file that cannot be used."""
        self._ring = None if config.keys_file is None else KeyRing(config.keys_file, config.reload_s)
        self._limiter = limiter
        self.refused = 0  # without a valid key

    def admit(self, authorization: str | None) -> Caller:
        """From the value of the header or metadata `authorization`.

        Raises ApiError: why a key is refused is not told, since a stranger might learn from it.
        """
        if self._ring is None:
            return ANYONE
        if not authorization:
            raise self._refusal("an API key is needed, as `Authorization: Bearer <key>`")
        scheme, _, text = authorization.partition(" ")
        presented = PresentedKey.parse(text.strip()) if scheme.lower() == _SCHEME else None
        record = self._ring.find(presented)
        if record is None:
            raise self._refusal("this API key is not valid")
        caller = Caller(record)
        self._limiter.count_request(caller)
        return caller

    def _refusal(self, message: str) -> ApiError:
        self.refused += 1
        return ApiError(ErrorKind.UNAUTHENTICATED, message)
