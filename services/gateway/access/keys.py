"""API keys: what a client holds, and what is kept of it."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

# The id finds the record, so that nothing secret is looked up; the rest alone proves the holder.
_SHAPE = re.compile(r"df-([0-9a-f]{12})-([A-Za-z0-9_-]{43})")
_ID_BYTES = 6
_SECRET_BYTES = 32


class KeyRecord(BaseModel):
    """One key as the key file holds it: the digest of its secret, never the secret."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(pattern=r"^[0-9a-f]{12}$", description="Public part of the key.")
    name: str = Field(min_length=1, max_length=128, description="Whom it was made for.")
    digest: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the secret part, in hex.")
    created: AwareDatetime = Field(description="When it was made.")
    expires: AwareDatetime | None = Field(default=None, description="From then on it is refused; none: never.")
    revoked: AwareDatetime | None = Field(default=None, description="When it was withdrawn; none: it was not.")
    requests_per_minute: int | None = Field(
        default=None, ge=1, le=1_000_000, description="Requests of all kinds a minute, at each gateway replica."
    )
    tokens_per_minute: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000_000,
        description="Prompt and answer tokens a minute, at each gateway replica.",
    )
    max_concurrent_requests: int | None = Field(
        default=None, ge=1, le=100_000, description="Generations in progress, at each gateway replica."
    )


@dataclass(frozen=True, slots=True)
class PresentedKey:
    """A key as a client sent it. Its text is in no representation, so that no log can hold it."""

    id: str
    _digest: bytes

    def __repr__(self) -> str:
        return f"PresentedKey(id={self.id!r})"

    @classmethod
    def parse(cls, text: str) -> PresentedKey | None:
        """None for what cannot be a key."""
        match = _SHAPE.fullmatch(text)
        return None if match is None else cls(match[1], digest_of(match[2]))

    def proves(self, record: KeyRecord) -> bool:
        """Whether it holds the secret of that record, in a time that tells nothing."""
        return hmac.compare_digest(self._digest, bytes.fromhex(record.digest))


@dataclass(frozen=True, slots=True)
class NewKey:
    """Shown to its owner once."""

    id: str
    text: str
    digest: str

    def __repr__(self) -> str:
        return f"NewKey(id={self.id!r})"


def new_key() -> NewKey:
    key_id = secrets.token_hex(_ID_BYTES)
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    return NewKey(key_id, f"df-{key_id}-{secret}", digest_of(secret).hex())


def digest_of(secret: str) -> bytes:
    """A slow hash would protect what people can remember; a secret of 256 random bits cannot be searched for,
    and it is checked at every request."""
    return hashlib.sha256(secret.encode()).digest()
