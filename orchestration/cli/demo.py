"""draftfleet demo"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from orchestration.cli import options
from orchestration.cli.console import err, fetch_model, out, steps
from orchestration.cli.failure import Failure

if TYPE_CHECKING:
    from orchestration.demo import Comparison


def demo(target: options.Target = None, config: options.ConfigFile = None, settings: options.Settings = None) -> None:
    """Start the whole service, answer two prompts with and without drafts, compare, stop."""
    from orchestration.ports import free_ports

    http_port, grpc_port = free_ports(2)
    flags = {
        "model.target": target,
        "serve.http_port": http_port,
        "gateway.grpc_port": grpc_port,
        **options.LOCAL_DEFAULTS,
        # It asks its own service, which nobody else reaches.
        "gateway.access": {"keys_file": None},
        "gateway.tls": {"certificate": None, "key": None, "client_ca": None},
    }
    loaded = options.load_config(config, settings, flags)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    fetch_model(loaded.model.target, loaded.model.cache_dir)

    from orchestration.cli.client import Client
    from orchestration.demo import PROMPTS, compare
    from orchestration.local import LocalFleet, StartupError
    from orchestration.machine import fit, has_nvidia_gpu, num_cores

    fleet = LocalFleet(fit(loaded, num_cores(), has_nvidia_gpu()))
    try:
        with steps("starting") as step:
            fleet.on_step = step
            fleet.start()
    except StartupError as error:
        raise Failure(str(error)) from error
    try:
        with Client(fleet.grpc_address) as client:
            model = client.model()
            kinds = ", ".join(model.drafters) or "none"
            out.print(
                f"[bold]{model.name}[/] on {model.device}, {model.precision}, exactness: {model.exactness}; "
                f"drafters: {kinds}\n"
            )
            found = [compare(client, prompt, lambda text: out.print(Text(f"> {text}\n", "cyan"))) for prompt in PROMPTS]
    finally:
        with steps("stopping") as step:
            fleet.on_step = step
            fleet.stop()
    out.print()
    out.print(_table(found))
    out.print("Tokens per second with and without drafts, prefill included; same text: as plain decoding wrote it.")
    if not all(comparison.is_identical for comparison in found):
        raise Failure("the text differs from plain decoding")
    err.print("stopped")


def _table(found: list[Comparison]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("prompt", "tokens", "plain", "drafted", "speed-up", "accepted length", "drafter", "same text"):
        table.add_column(column, justify="left" if column in ("prompt", "drafter", "same text") else "right")
    for comparison in found:
        stats = comparison.drafted.speculation
        table.add_row(
            comparison.prompt.title,
            str(len(comparison.drafted.token_ids)),
            f"{comparison.plain_speed:.1f}/s",
            f"{comparison.drafted_speed:.1f}/s",
            f"{comparison.speedup:.2f}x",
            f"{stats.accepted_length:.2f}",
            stats.drafter,
            Text("yes", "green") if comparison.is_identical else Text("NO", "bold red"),
        )
    return table
