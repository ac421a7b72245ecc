"""Settings: order of sources, and errors that help."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from orchestration.config import FleetConfig
from orchestration.sources import ConfigError, load, parse_flag, valid_keys, validate


def write(path: Path, tree: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(tree))
    return path


def test_defaults_serve_the_default_model_with_every_drafter() -> None:
    config = load(None, {}, {})
    assert config == FleetConfig()
    assert config.model.target == "default"
    assert list(config.drafters) == ["lookup", "mtp", "dfly"]
    assert (config.serve.http_port, config.gateway.grpc_port) == (8000, 9000)


def test_later_sources_win(tmp_path: Path) -> None:
    file = write(
        tmp_path / "f.yaml",
        {"engine": {"max_sequences": 2, "threads": 3}, "serve": {"http_port": 81}, "gateway": {"grpc_port": 91}},
    )
    environment = {"DRAFTFLEET__ENGINE__MAX_SEQUENCES": "4", "DRAFTFLEET__SERVE__HTTP_PORT": "82", "HOME": "/x"}
    config = load(file, {"serve.http_port": 83}, environment)
    assert config.engine.threads == 3
    assert config.engine.max_sequences == 4
    assert config.serve.http_port == 83
    assert config.gateway.grpc_port == 91


def test_a_command_has_its_own_defaults() -> None:
    own = {"gateway.host": "127.0.0.1", "gateway.grpc_port": 1}
    config = load(None, {"gateway.grpc_port": 2}, {}, defaults=own)
    assert (config.gateway.host, config.gateway.grpc_port) == ("127.0.0.1", 2)
    assert load(None, {}, {"DRAFTFLEET__GATEWAY__HOST": "::"}, defaults=own).gateway.host == "::"


def test_sections_merge_and_pools_are_named_by_their_key() -> None:
    config = load(
        None,
        {"drafters.lookup.replicas": 2, "drafters.lookup": {"num_cpus": 0.5}, "engine": {"max_queue": 9}},
        {"DRAFTFLEET__ENGINE__MAX_SEQUENCES": "4"},
    )
    assert (config.engine.max_queue, config.engine.max_sequences) == (9, 4)
    pool = config.drafters["lookup"]
    assert (pool.kind, pool.replicas, pool.num_cpus) == ("lookup", 2, 0.5)
    assert load(None, {"drafters": {}}, {}).drafters == {}


def test_pools_that_are_not_named_keep_their_defaults() -> None:
    defaults = FleetConfig().drafters
    config = load(None, {"drafters.mtp.neural.weights": "here", "drafters.dfly.replicas": 0}, {})
    assert config.drafters["lookup"] == defaults["lookup"]
    assert config.drafters["mtp"].neural.weights == Path("here")
    assert config.drafters["mtp"].num_cpus == defaults["mtp"].num_cpus
    assert config.drafters["dfly"].replicas == 0
    assert FleetConfig.model_validate(config.model_dump()) == config


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"engine.max_sequnces": 3}, "engine.max_sequnces: there is no such key; did you mean engine.max_sequences?"),
        ({"engin.threads": 3}, "engin: there is no such key; did you mean engine?"),
        ({"http_port": 3}, "http_port: there is no such key; did you mean serve.http_port?"),
        ({"zzz": 3}, "zzz: there is no such key; the nearest valid key is "),
        (
            {"drafters.lookup.replics": 3},
            "drafters.lookup.replics: there is no such key; did you mean drafters.lookup.replicas?",
        ),
        (
            {"drafters.lookup.sessions.max_session": 3},
            "drafters.lookup.sessions.max_session: there is no such key; "
            "did you mean drafters.lookup.sessions.max_sessions?",
        ),
        ({"serve.http_port": 700000}, "serve.http_port: 700000: Input should be less than or equal to 65535"),
        ({"engine.threads": "many"}, "engine.threads: 'many': Input should be a valid integer"),
        ({"drafters.lookup.kind": "mtp"}, "drafters.lookup.kind: 'mtp' must be 'lookup', the key of its pool"),
        ({"engine": 3}, "engine: 3: Input should be"),
        ({"engine": 3, "engine.threads": 1}, "engine.threads: engine already has the value 3"),
    ],
)
def test_errors_name_the_key_and_the_way_out(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, flags, {})
    assert message in str(caught.value)


def test_every_error_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, {"engine.thread": 1, "serve.http_port": 0, "model.target": ""}, {})
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [("a: [", "it is not YAML"), ("- a", "a mapping of sections"), ("3: 4", "a mapping of sections")],
)
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(content)
    with pytest.raises(ConfigError, match=message):
        load(file, {}, {})


def test_a_file_may_be_empty_but_not_missing(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text("# nothing\n")
    assert load(file, {}, {}) == FleetConfig()
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "none.yaml", {}, {})


def test_flags_are_read_as_yaml() -> None:
    assert parse_flag("a.b=3") == ("a.b", 3)
    assert parse_flag("a=x=y") == ("a", "x=y")
    assert parse_flag("a={b: [1, 2]}") == ("a", {"b": [1, 2]})
    assert parse_flag("a=") == ("a", None)
    assert parse_flag("a=b: c") == ("a", "b: c")
    assert parse_flag("a=%x") == ("a", "%x")
    for wrong in ("a", "=3", "a=[1"):
        with pytest.raises(ConfigError):
            parse_flag(wrong)


def test_off_is_a_word_wherever_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text("engine: {dcut: {mode: off}}\n")
    for given in (
        load(None, dict([parse_flag("engine.dcut.mode=off")]), {}),
        load(None, {}, {"DRAFTFLEET__ENGINE__DCUT__MODE": "off"}),
        load(file, {}, {}),
    ):
        assert given.engine.dcut.mode == "off"
    with pytest.raises(ConfigError, match="mode: True"):
        load(None, {"engine.dcut.mode": True}, {})


def test_what_is_shown_can_be_read_again() -> None:
    config = load(None, {"drafters.lookup.replicas": 2, "engine.threads": 3}, {})
    assert validate(config.model_dump(mode="json")) == config


def test_every_setting_says_what_it_is() -> None:
    assert "drafters.*.sessions.max_sessions" in set(valid_keys())

    def models(model: type[BaseModel], seen: set[type[BaseModel]]) -> set[type[BaseModel]]:
        seen.add(model)
        for field in model.model_fields.values():
            for kind in (field.annotation, *getattr(field.annotation, "__args__", ())):
                if isinstance(kind, type) and issubclass(kind, BaseModel):
                    models(kind, seen)
        return seen

    for model in models(FleetConfig, set()):
        assert model.model_config.get("extra") == "forbid", model
        silent = [name for name, field in model.model_fields.items() if not field.description]
        assert not silent, f"{model.__name__} does not describe {silent}"
