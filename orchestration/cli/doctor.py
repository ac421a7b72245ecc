"""draftfleet doctor"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from orchestration.cli.console import err, out

_MARKS = {"ok": ("ok", "green"), "warn": ("warn", "yellow"), "fail": ("FAIL", "bold red")}


def doctor(
    http_port: Annotated[int, typer.Option(min=1, max=65535)] = 8000,
    grpc_port: Annotated[int, typer.Option(min=1, max=65535)] = 9000,
    as_json: Annotated[bool, typer.Option("--json", help="As a JSON list.")] = False,
) -> None:
    """Check this machine and say what to do; exit status 1 when the service cannot run on it."""
    from orchestration.checks import all_checks

    with err.status("looking around ..."):
        checks = list(all_checks(http_port, grpc_port))
    if as_json:
        print(json.dumps([asdict(check) for check in checks], indent=2))
    else:
        table = Table(box=None, pad_edge=False, show_header=False)
        for check in checks:
            advice = Text(check.advice, "cyan") if check.level != "ok" else Text()
            table.add_row(Text(*_MARKS[check.level]), Text(check.name, "bold"), Text(check.found), advice)
        out.print(table)
    if any(check.level == "fail" for check in checks):
        raise typer.Exit(1)
