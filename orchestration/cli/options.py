"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestration.cli.failure import Failure

if TYPE_CHECKING:
    from orchestration.config import FleetConfig

Target = Annotated[
    str | None, typer.Option("--target", "-t", help="'default', a model folder, a hub id or a .gguf file.")
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", "-c", exists=True, dir_okay=False, help="YAML file with settings.")
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", "-s", metavar="KEY=VALUE", help="One setting, dotted; may be repeated.")
]
ApiKeyFile = Annotated[
    Path | None,
    typer.Option("--api-key-file", exists=True, dir_okay=False, help="File with the API key, where one is asked for."),
]
CaFile = Annotated[
    Path | None,
    typer.Option("--ca-file", exists=True, dir_okay=False, help="Speak TLS, and trust certificates signed by these."),
]
Address = Annotated[str, typer.Option("--address", "-a", help="host:port of the gRPC front door.")]
MaxTokens = Annotated[int, typer.Option("--max-tokens", "-n", min=1, help="Most tokens of the answer.")]
Temperature = Annotated[float, typer.Option("--temperature", min=0.0, max=2.0, help="0 is greedy.")]
TopP = Annotated[float, typer.Option("--top-p", min=0.0, max=1.0, help="Nucleus sampling; 1 is off.")]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="Same seed, same text.")]
Drafter = Annotated[str, typer.Option("--drafter", "-d", help="auto, mtp, dfly, lookup or none.")]
MaxDraft = Annotated[int | None, typer.Option("--max-draft-tokens", min=0, help="Most draft tokens a round.")]
ShowDrafts = Annotated[
    bool, typer.Option("--show-drafts", help="Colour accepted, rejected and bonus tokens in the answer.")
]
Stats = Annotated[bool, typer.Option("--stats/--no-stats", help="Speed and accepted length after the answer.")]

DEFAULT_ADDRESS = "127.0.0.1:9000"


# Without authentication nobody but this machine is let in, unless the user says so.
LOCAL_DEFAULTS = {"gateway.host": "127.0.0.1", "serve.http_host": "127.0.0.1"}


def read_key(path: Path | None) -> str | None:
    return None if path is None else path.read_text().strip()


def load_config(
    path: Path | None, settings: list[str] | None, flags: dict[str, Any], defaults: dict[str, Any] | None = None
) -> FleetConfig:
    """The settings of all sources; `flags` that are None were not given. Raises Failure."""
    from orchestration.sources import ConfigError, load, parse_flag

    try:
        given = dict(parse_flag(text) for text in settings or ())
        given.update({name: value for name, value in flags.items() if value is not None})
        return load(path, given, defaults=defaults)
    except ConfigError as error:
        raise Failure(str(error)) from error
