"""What is asked of whom: an arm of a benchmark."""

from __future__ import annotations

import re
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

Api = Literal["chat", "completions"]
_GRPC = re.compile(r"grpc://[^/\s]+:\d+")


class Arm(BaseModel):
    """An endpoint, and how each request asks it. Two arms of one run may differ in anything here."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str = Field("", description="What tables call it.")
    url: str = Field(
        "grpc://127.0.0.1:9000",
        description="grpc://host:port, or http(s)://host:port of an OpenAI API; without a path: /v1.",
    )
    model: str = Field("", description="Name to ask for; empty: the first one that the endpoint lists.")
    api: Api = Field("chat", description="chat answers a user's turn, completions continues a text.")
    max_tokens: int = Field(128, ge=1)
    temperature: float = Field(0.0, ge=0.0, le=2.0)
    top_p: float = Field(1.0, gt=0.0, le=1.0)
    seed: int | None = Field(0, ge=0, description="Of each request's sampling; null leaves it to the server.")
    ignore_eos: bool = Field(False, description="Always max_tokens tokens. OpenAI's own API has no such field.")
    drafter: str | None = Field(None, description="draftfleet only: auto, mtp, dfly, lookup or none.")
    max_draft_tokens: int | None = Field(None, ge=0, description="draftfleet only.")
    force: bool = Field(False, description="draftfleet only: draft that many in every round, and verify all of them.")

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        if _GRPC.fullmatch(url):
            return url
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no endpoint; it must be grpc://host:port, http://... or https://...")
        if parts.username or parts.password or parts.query:
            raise ValueError("it must not hold credentials or a query; results would keep them")
        bare = url.rstrip("/")
        return bare if parts.path.strip("/") else f"{bare}/v1"

    @property
    def is_grpc(self) -> bool:
        return self.url.startswith("grpc://")


def with_settings(arm: Arm, settings: list[str]) -> Arm:
    """The arm with fields changed by "key=value" texts. Raises ValueError naming the field and what it may be."""
    changed: dict[str, Any] = {}
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals or key not in Arm.model_fields:
            raise ValueError(f"{text!r} is no setting of an arm; it must be KEY=VALUE with KEY one of {_keys()}")
        changed[key] = None if value == "null" else value
    return build_arm({**arm.model_dump(), **changed})


def build_arm(fields: dict[str, Any]) -> Arm:
    """Raises ValueError naming the field, its value and what is allowed."""
    try:
        return Arm.model_validate(fields)
    except ValidationError as error:
        raise ValueError(first_problem(error)) from error


def first_problem(error: ValidationError) -> str:
    """The field, its value and what is allowed."""
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['input']!r}: {first['msg']}"


def _keys() -> str:
    return ", ".join(Arm.model_fields)
