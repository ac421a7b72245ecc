"""Arms of a benchmark."""

from __future__ import annotations

import pytest

from orchestration.bench.options import Arm, build_arm, with_settings


@pytest.mark.parametrize(
    ("given", "url", "is_grpc"),
    [
        ("grpc://127.0.0.1:9000", "grpc://127.0.0.1:9000", True),
        ("http://host:8000", "http://host:8000/v1", False),
        ("http://host:8000/", "http://host:8000/v1", False),
        ("https://host/openai/v1/", "https://host/openai/v1", False),
    ],
)
def test_the_scheme_tells_the_protocol(given: str, url: str, is_grpc: bool) -> None:
    arm = build_arm({"url": given})
    assert (arm.url, arm.is_grpc) == (url, is_grpc)


@pytest.mark.parametrize(
    "url", ["127.0.0.1:9000", "grpc://host", "ftp://host/v1", "http://me:secret@host/v1", "http://h/?key=1"]
)
def test_what_is_no_endpoint_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="url: "):
        build_arm({"url": url})


def test_settings_change_their_field_alone() -> None:
    arm = Arm(name="A", drafter="auto", seed=3)
    assert with_settings(arm, ["drafter=none", "max_tokens=7", "seed=null"]) == arm.model_copy(
        update={"drafter": "none", "max_tokens": 7, "seed": None}
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("drafters=none", "KEY one of name, url"),
        ("drafter", "KEY=VALUE"),
        ("max_tokens=0", "max_tokens: '0': "),
        ("temperature=3", "temperature: '3': "),
        ("api=edit", "api: 'edit': "),
    ],
)
def test_wrong_settings_are_named(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        with_settings(Arm(), [text])
