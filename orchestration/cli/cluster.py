"""What commands share that speak to a cluster's dashboard."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from orchestration.cli.console import out
from orchestration.cli.failure import Failure

TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", exists=True, dir_okay=False, help="Ray's token, where the cluster asks for one."),
]


def show_deployments(dashboard: str, token_file: Path | None, as_json: bool) -> None:
    """Deployments, their replicas, and the nodes that hold them, as Serve sees them. Raises Failure."""
    from orchestration.cluster.serve_api import ClusterError, ServeApi

    try:
        with ServeApi(dashboard, read_token(token_file)) as api:
            state = api.state()
    except ClusterError as error:
        raise Failure(str(error)) from error
    if state is None:
        raise Failure(f"the cluster at {dashboard} runs no draftfleet; start it with `draftfleet deploy`")
    if as_json:
        print(json.dumps(asdict(state), indent=2))
        return
    out.print(f"[bold]application[/] {state.status}")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("deployment", "status", "replicas", "nodes"):
        table.add_column(column)
    for deployment in state.deployments:
        nodes = Counter(str(replica["node_ip"]) for replica in deployment.replicas if replica["node_ip"])
        held = ", ".join(f"{node} ({count})" for node, count in sorted(nodes.items()))
        table.add_row(deployment.name, deployment.status, f"{deployment.running}/{deployment.wanted}", held)
    out.print(table)
    for reason in () if state.is_ready else state.reasons():
        out.print(reason)


def read_token(file: Path | None) -> str | None:
    """Raises Failure for a file without one."""
    if file is None:
        return None
    try:
        token = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"--token-file: {file} cannot be read ({error})") from error
    if not token:
        raise Failure(f"--token-file: {file} is empty")
    return token
