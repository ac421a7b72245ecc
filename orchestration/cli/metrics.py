"""draftfleet metrics"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from orchestration.cli import options
from orchestration.cli.console import out
from orchestration.cli.door import get


def metrics(
    url: Annotated[str, typer.Option("--url", help="Address of the HTTP API.")] = "http://127.0.0.1:8000",
    names: Annotated[bool, typer.Option("--names", help="All metrics and their meaning, without a service.")] = False,
    api_key_file: options.ApiKeyFile = None,
    ca_file: options.CaFile = None,
    raw: Annotated[bool, typer.Option("--raw", help="The text that Prometheus reads.")] = False,
) -> None:
    """What a running fleet has counted: every total and gauge that is not 0."""
    if names:
        out.print(_names())
        return
    text = get(url, "/metrics", api_key_file, ca_file).text
    if raw:
        print(text, end="")
        return
    out.print(_values(text))


def _values(text: str) -> Table:
    from prometheus_client.parser import text_string_to_metric_families

    table = Table("name", "labels", box=None, pad_edge=False, header_style="bold")
    table.add_column("value", justify="right")
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.value and sample.name.startswith("draftfleet_") and "le" not in sample.labels:
                labels = ", ".join(f"{name}={value}" for name, value in sample.labels.items())
                table.add_row(sample.name, labels, f"{sample.value:.6g}")
    return table


def _names() -> Table:
    from services.metrics.catalogue import METRICS

    table = Table("name", "type", "labels", "meaning", box=None, pad_edge=False, header_style="bold")
    for metric in METRICS.values():
        table.add_row(metric.shown, metric.type, ", ".join(label.name for label in metric.labels), metric.help)
    return table
