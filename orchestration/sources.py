"""Where settings come from: defaults < YAML file < environment < flags."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from orchestration.config import FleetConfig

ENV_PREFIX = "DRAFTFLEET__"
Tree = dict[str, Any]


class ConfigError(ValueError):
    """Settings that do not make sense; the message names every one of them."""


def load(
    path: Path | None,
    flags: Mapping[str, Any],
    environment: Mapping[str, str] = os.environ,
    *,
    defaults: Mapping[str, Any] | None = None,
) -> FleetConfig:
    """The settings of a YAML file, of DRAFTFLEET__SECTION__KEY variables and of dotted flags, where later ones win.

    `defaults`, dotted too, come before all of them. Raises ConfigError.
    """
    tree: Tree = {}
    for name, value in (defaults or {}).items():
        put(tree, name.split("."), value)
    if path is not None:
        _merge(tree, read_yaml(path))
    for name, text in sorted(environment.items()):
        if name.startswith(ENV_PREFIX):
            put(tree, name[len(ENV_PREFIX) :].lower().split("__"), _parse(name, text))
    for name, value in flags.items():
        put(tree, name.split("."), value)
    return validate(tree)


def parse_flag(text: str) -> tuple[str, Any]:
    """`engine.max_sequences=8` to its dotted name and its value, read as YAML. Raises ConfigError."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigError(f"{text!r} is not of the form section.key=value")
    return name.strip(), _parse(name, value)


def validate(tree: Mapping[str, Any]) -> FleetConfig:
    """Raises ConfigError that names every wrong key or value, for unknown keys also the nearest valid one."""
    try:
        return FleetConfig.model_validate(dict(tree))
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(detail) for detail in error.errors())) from error


def valid_keys(model: type[BaseModel] = FleetConfig, prefix: str = "") -> Iterator[str]:
    """Every dotted key of the schema; a `*` stands for the keys of a mapping."""
    for name, field in model.model_fields.items():
        yield prefix + name
        nested, is_mapping = _nested(field.annotation)
        if nested is not None:
            yield from valid_keys(nested, f"{prefix}{name}.*." if is_mapping else f"{prefix}{name}.")


def _nested(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    arguments = get_args(annotation)
    if len(arguments) == 2 and isinstance(arguments[1], type) and issubclass(arguments[1], BaseModel):
        return arguments[1], True
    return None, False


def _explain(detail: ErrorDetails) -> str:
    key = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        return f"{key}: there is no such key{_suggestion(detail['loc'])}"
    value = detail["input"]
    shown = "" if isinstance(value, (dict, BaseModel)) else f": {value!r}"
    return f"{key}{shown}: {detail['msg'].removeprefix('Value error, ')}"


def _suggestion(location: Sequence[int | str]) -> str:
    model: type[BaseModel] | None = FleetConfig
    is_key = False  # of a mapping: any name will do
    for part in location[:-1]:
        if is_key:
            is_key = False
        elif model is not None and str(part) in model.model_fields:
            model, is_key = _nested(model.model_fields[str(part)].annotation)
    wrong = str(location[-1])
    here = list(model.model_fields) if model is not None else []
    prefix = "".join(f"{part}." for part in location[:-1])
    if near := difflib.get_close_matches(wrong, here, n=1, cutoff=0.6):
        return f"; did you mean {prefix}{near[0]}?"
    elsewhere = [key for key in valid_keys() if key.rsplit(".", 1)[-1] == wrong]
    if elsewhere:
        return f"; did you mean {elsewhere[0]}?"
    near = difflib.get_close_matches(f"{prefix}{wrong}", list(valid_keys()), n=1, cutoff=0.0)
    return f"; the nearest valid key is {near[0]}" if near else ""


def read_yaml(path: Path) -> Tree:
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: it cannot be read ({error.strerror or error})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: it is not YAML ({error})") from error
    if tree is None:
        return {}
    if not isinstance(tree, dict) or not all(isinstance(key, str) for key in tree):
        raise ConfigError(f"{path}: it must hold a mapping of sections")
    return tree


def _parse(name: str, text: str) -> Any:
    """A YAML value on one line; what would be YAML's block style is plain text, such as the address "::"."""
    is_flow = text.lstrip().startswith(("[", "{", "'", '"'))
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        if not is_flow:
            return text
        raise ConfigError(f"{name}: {text!r} is not a YAML value") from error
    return text if isinstance(value, (dict, list)) and not is_flow else value


def put(tree: Tree, path: Sequence[str], value: Any) -> None:
    node = tree
    for depth, part in enumerate(path[:-1]):
        child = node.setdefault(part, {})
        if not isinstance(child, dict):
            raise ConfigError(f"{'.'.join(path)}: {'.'.join(path[: depth + 1])} already has the value {child!r}")
        node = child
    if isinstance(value, dict) and isinstance(node.get(path[-1]), dict):
        _merge(node[path[-1]], value)
    else:
        node[path[-1]] = value


def _merge(into: Tree, other: Mapping[str, Any]) -> None:
    for key, value in other.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value
