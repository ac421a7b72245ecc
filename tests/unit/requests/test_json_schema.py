"""Bounds of schemas, before anything is compiled."""

from __future__ import annotations

import json

import pytest

from services.requests.json_schema import ANY_OBJECT, MAX_SCHEMA_BYTES, MAX_SCHEMA_DEPTH, check_schema
from services.requests.sampling import SamplingParams


def nested(levels: int) -> str:
    return '{"a":' * (levels - 1) + "{}" + "}" * (levels - 1)


def test_what_is_within_the_bounds_passes() -> None:
    for schema in (ANY_OBJECT, "{}", nested(MAX_SCHEMA_DEPTH), json.dumps({"enum": ["x" * (MAX_SCHEMA_BYTES - 20)]})):
        check_schema(schema)
        assert SamplingParams(response_format=schema).response_format == schema


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("", "must be valid JSON"),
        ("{", "must be valid JSON"),
        ("[]", "must be a JSON object"),
        ("true", "must be a JSON object"),
        (nested(MAX_SCHEMA_DEPTH + 1), f"at most {MAX_SCHEMA_DEPTH} levels"),
        ("[" * 50_000, f"at most {MAX_SCHEMA_DEPTH} levels"),
        ('{"a":' * 12_000, f"at most {MAX_SCHEMA_DEPTH} levels"),
        (json.dumps({"enum": ["x" * MAX_SCHEMA_BYTES]}), f"at most {MAX_SCHEMA_BYTES} are allowed"),
        (json.dumps({"enum": ["\u00e9" * (MAX_SCHEMA_BYTES // 2)]}, ensure_ascii=False), "bytes are too many"),
    ],
)
def test_what_is_past_them_is_named(schema: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^response_format: .*{message}"):
        SamplingParams(response_format=schema)
