"""draftfleet config"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from orchestration.cli import options

app = typer.Typer(help="Settings.", no_args_is_help=True)


@app.command()
def show(
    config: options.ConfigFile = None,
    settings: options.Settings = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON instead of YAML.")] = False,
) -> None:
    """Every setting as it comes out of defaults, file, environment and --set."""
    import yaml

    values = options.load_config(config, settings, {}).model_dump(mode="json")
    print(json.dumps(values, indent=2) if as_json else yaml.safe_dump(values, sort_keys=False), end="")


@app.command()
def schema() -> None:
    """The JSON schema of all settings, with bounds and descriptions."""
    from orchestration.config import FleetConfig

    print(json.dumps(FleetConfig.model_json_schema(), indent=2))
