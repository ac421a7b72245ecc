"""draftfleet status"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from orchestration.cli import options
from orchestration.cli.cluster import TokenFile, show_deployments
from orchestration.cli.console import out
from orchestration.cli.costs import describe
from orchestration.cli.door import get
from orchestration.cli.failure import Failure


def status(
    url: Annotated[str, typer.Option("--url", help="Address of the HTTP API.")] = "http://127.0.0.1:8000",
    api_key_file: options.ApiKeyFile = None,
    ca_file: options.CaFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False,
    dashboard: Annotated[
        str | None, typer.Option("--dashboard", help="Instead ask a cluster by the address of its Ray dashboard.")
    ] = None,
    token_file: TokenFile = None,
) -> None:
    """What a running service consists of and how busy it is."""
    if dashboard is not None:
        show_deployments(dashboard, token_file, as_json)
        return
    found = fetch_status(url, api_key_file, ca_file)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    model = found["model"]
    if model is None:
        out.print("[bold]model[/]    none: no target replica answers")
    else:
        out.print(
            f"[bold]model[/]    {model['name']} on {model['device']}: {model['precision']}, "
            f"exactness {model['exactness']}, context {model['max_context']}"
        )
    gateway = found["gateway"]
    out.print(
        f"[bold]gateway[/]  {gateway['active_requests']} active, {gateway['refused_requests']} refused, "
        f"{gateway['lost_attempts']} attempts lost, {gateway['resumes']} resumed, "
        f"{gateway['failed_routes']} routes failed"
    )
    for target in found["dcut"]:
        out.print(f"[bold]d-cut[/]    {describe(target)}")
    out.print(_members(found["members"]))
    if found["fleet"]["guidance"]:
        out.print(_kinds(found["fleet"]))


def fetch_status(url: str, api_key_file: Path | None = None, ca_file: Path | None = None) -> dict[str, Any]:
    """Raises Failure when the service is away, wants another key or answers nonsense."""
    try:
        found: dict[str, Any] = get(url, "/status", api_key_file, ca_file).json()
    except ValueError as error:
        raise Failure(f"what answers at {url} is no draftfleet ({error})") from error
    return found


def _members(members: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("role", "kind", "address", "batch", "queue", "sessions", "exactness", "pid"):
        table.add_column(column, justify="right" if column in ("batch", "queue", "sessions", "pid") else "left")
    for member in sorted(members, key=lambda m: (m["role"], m["kind"], m["replica"])):
        sessions = f"{member['sessions']}/{member['capacity']}" if member["capacity"] else str(member["sessions"])
        table.add_row(
            member["role"],
            member["kind"],
            member["address"],
            str(member["batch"]),
            str(member["queue"]),
            sessions,
            member["exactness"],
            str(member["pid"]),
        )
    return table


def _kinds(fleet: dict[str, Any]) -> Table:
    """What the fleet has learned of each kind and class, and says of it."""
    kinds = {kind["kind"]: kind for kind in fleet["kinds"]}
    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = ("drafter", "class", "rounds", "accepted length", "round cost", "at most", "busy", "price", "replicas")
    for column in columns:
        table.add_column(column, justify="left" if column in ("drafter", "class") else "right")
    for entry in fleet["guidance"]:
        kind = kinds.get(entry["kind"])
        length = f"{entry['tokens'] / entry['rounds']:.2f}" if entry["rounds"] else ""
        row = [entry["kind"], entry["task_class"] or "?", f"{entry['rounds']:.0f}", length]
        row.append(f"{kind['plain_steps']:.2f}" if kind and kind["plain_steps"] else "")
        row.append(str(entry["max_draft"]) if entry["is_admitted"] else "turned away")
        if kind is not None:
            row += [f"{100 * kind['busy']:.0f}%", f"{1e3 * kind['price_s']:.2f} ms"]
            row.append(f"{kind['replicas']} of {kind['wanted']} wanted")
        table.add_row(*row)
    return table
