"""draftfleet simulate"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from orchestration.cli import options
from orchestration.cli.console import err, out
from orchestration.cli.failure import Failure
from orchestration.cli.status import fetch_status
from orchestration.sources import ConfigError, parse_flag, put, read_yaml

if TYPE_CHECKING:
    from services.simulation.config import PolicyConfig, SimulationConfig
    from services.simulation.outcome import Outcome

_POLICIES = ["plain", "static:mtp:3", "static:dfly:7", "adaptive"]
_POLICY = re.compile(r"(plain|adaptive)|(static|quarters):(mtp|dfly|lookup):(\d+)")


def simulate(
    config: Annotated[
        Path | None,
        typer.Option("--config", exists=True, dir_okay=False, help="YAML of settings; --schema lists them."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One setting, dotted; may be repeated.")
    ] = None,
    policies: Annotated[
        list[str], typer.Option("--policy", "-p", help="plain, adaptive, static:KIND:LENGTH or quarters:KIND:LENGTH.")
    ] = _POLICIES,
    like: Annotated[
        str | None, typer.Option("--like", metavar="URL", help="Take step and draft times from a running service.")
    ] = None,
    api_key_file: options.ApiKeyFile = None,
    ca_file: options.CaFile = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Also write a JSON file.")] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the schema of the settings and end.")] = False,
) -> None:
    """Play a fleet in virtual time, with the service's own router, D-cuts and replica numbers, and compare policies.

    Every policy gets the same requests. Told are those that ended and, of a second, the tokens and the requests within
    the objectives; the accepted length; latencies at 50 and 99 %; replica hours of targets and drafters.
    Examples: --set target.replicas=100 --set work.rate=80, --set work.concurrency=16, --set failures.target_every_s=60
    """
    from services.simulation.config import SimulationConfig
    from services.simulation.outcome import simulate as run

    if schema:
        print(json.dumps(SimulationConfig.model_json_schema(), indent=1))
        return
    status = None if like is None else fetch_status(like, api_key_file, ca_file)
    chosen = _settings(config, settings or [], status)
    outcomes = []
    for policy in [_policy(text) for text in policies]:
        err.print(f"simulating {policy.title} ...", markup=False)
        outcomes.append(run(chosen, policy))
    out.print(_table(outcomes))
    if output is not None:
        told = {"settings": chosen.model_dump(mode="json"), "outcomes": [outcome.as_dict() for outcome in outcomes]}
        output.write_text(json.dumps(told, indent=1) + "\n")
        out.print(f"written: {output}")


def _settings(config: Path | None, flags: list[str], status: dict[str, Any] | None) -> SimulationConfig:
    from pydantic import ValidationError

    from orchestration.bench.options import first_problem
    from services.simulation.config import SimulationConfig

    try:
        given: dict[str, Any] = read_yaml(config) if config is not None else {}
        if status is not None:
            _fill(given, status)
        for flag in flags:
            key, value = parse_flag(flag)
            put(given, key.split("."), value)
        return SimulationConfig.model_validate(given)
    except ValidationError as error:
        raise Failure(first_problem(error)) from error
    except ConfigError as error:
        raise Failure(str(error)) from error


def _fill(given: dict[str, Any], status: dict[str, Any]) -> None:
    """Step times, draft times and acceptance as a running service has measured them."""
    if not status["dcut"]:
        raise Failure("--like: no target replica of that service tells its costs")
    target = status["dcut"][0]
    given.setdefault("target", {})["steps"] = [
        {"rows": rows, "ms": ms, "context": line["context"], "prefill": line["prefill"]}
        for line in target["lines"]
        for rows, ms in zip(line["rows"], line["expected_ms"], strict=True)
    ]
    acceptance: dict[str, dict[str, float]] = {}
    for entry in status["fleet"]["guidance"]:
        if entry["acceptance"] and entry["task_class"]:
            acceptance.setdefault(entry["kind"], {})[entry["task_class"]] = entry["acceptance"][0]
    waits = {wait["kind"]: wait for wait in target["waits"]}
    known = sorted(acceptance.keys() & waits.keys())
    if not known:
        raise Failure("--like: that service has not drafted yet; send it some requests first")
    given["drafters"] = [
        {"kind": kind, "acceptance": acceptance[kind], "cost": dict(zip("abcd", waits[kind]["terms_ms"], strict=True))}
        for kind in known
    ]
    given.setdefault("rpc_ms", 0.0)  # what a target waits for holds it


def _policy(text: str) -> PolicyConfig:
    from services.simulation.config import PolicyConfig

    found = _POLICY.fullmatch(text)
    if found is None:
        raise Failure(f"--policy: {text!r} must be plain, adaptive, static:KIND:LENGTH or quarters:KIND:LENGTH")
    if found[1]:
        return PolicyConfig.model_validate({"name": found[1]})
    try:
        return PolicyConfig.model_validate({"name": found[2], "kind": found[3], "length": int(found[4])})
    except ValueError as error:
        raise Failure(f"--policy: the length of {text!r} must be at least 1 and at most 16") from error


def _table(outcomes: list[Outcome]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("policy", no_wrap=True)
    has_deaths = any(outcome.deaths for outcome in outcomes)
    figures = ["ended", "tok/s", "good/s", "length", "TTFT ms", "TPOT ms", "hours"]
    for column in [*figures, "deaths"] if has_deaths else figures:
        table.add_column(column, justify="right", no_wrap=True)
    for o in outcomes:
        row = [o.policy, str(o.requests), f"{o.tokens_per_s:.1f}", f"{o.goodput:.2f}", f"{o.accepted_length:.2f}"]
        row += [f"{o.ttft_p50:.0f} {o.ttft_p99:.0f}", f"{o.tpot_p50:.1f} {o.tpot_p99:.1f}"]
        row.append(f"{o.target_hours:.2f}+{o.drafter_hours:.2f}")
        table.add_row(*row, *([str(o.deaths)] if has_deaths else []))
    return table
