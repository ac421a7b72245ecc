"""draftfleet serve"""

from __future__ import annotations

import ipaddress
import signal
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.cli import options
from orchestration.cli.console import err, fetch_model, out, steps
from orchestration.cli.failure import Failure

if TYPE_CHECKING:
    from orchestration.config import FleetConfig
    from orchestration.local import LocalFleet


def serve(
    target: options.Target = None,
    http_port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port of the HTTP API [8000].")] = None,
    grpc_port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port of the gRPC API [9000].")] = None,
    host: Annotated[
        str | None, typer.Option(help="Interface of both APIs [127.0.0.1]; 0.0.0.0 lets the whole network in.")
    ] = None,
    keys: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Key file; then every request needs a key of it.")
    ] = None,
    config: options.ConfigFile = None,
    settings: options.Settings = None,
) -> None:
    """Run the whole service on this machine until Ctrl-C."""
    flags = {
        "model.target": target,
        "serve.http_port": http_port,
        "gateway.grpc_port": grpc_port,
        "serve.http_host": host,
        "gateway.host": host,
        "gateway.access.keys_file": keys,
    }
    loaded = options.load_config(config, settings, flags, options.LOCAL_DEFAULTS)
    check_access(loaded)
    _check_ports(loaded)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    # Before the replicas, so that one progress bar shows it and they find it ready.
    fetch_model(loaded.model.target, loaded.model.cache_dir, loaded.model.sha256)

    from orchestration.local import LocalFleet, StartupError
    from orchestration.machine import fit, has_nvidia_gpu, num_cores

    started = time.monotonic()
    try:
        with steps("starting") as step:
            fleet = LocalFleet(fit(loaded, num_cores(), has_nvidia_gpu()), on_step=step)
            fleet.start()
    except (StartupError, ValueError) as error:
        raise Failure(str(error)) from error
    has_died = False
    try:
        out.print(f"{_ready_line(fleet)} · started in {time.monotonic() - started:.0f} s")
        while not (has_died := not fleet.is_alive()):
            time.sleep(1.0)
    except KeyboardInterrupt:
        pass
    finally:
        with steps("stopping") as step:
            fleet.on_step = step
            fleet.stop(keep_logs=has_died)
    if has_died:
        raise Failure(f"Ray has ended by itself; its logs are in {fleet.logs}")
    err.print("stopped")


def _check_ports(config: FleetConfig) -> None:
    from orchestration.ports import PortTakenError, check_ports_free

    try:
        check_ports_free(config)
    except PortTakenError as error:
        raise Failure(str(error)) from error


def check_access(config: FleetConfig) -> None:
    """Files that cannot be used end the command here, not in a replica's log; an open door is told."""
    from services.gateway.access.ring import KeyRing
    from services.gateway.access.tls import Certificates

    access, tls = config.gateway.access, config.gateway.tls
    try:
        if access.keys_file is not None:
            KeyRing(access.keys_file, access.reload_s)
        if tls.is_on:
            Certificates(tls)
    except ValueError as error:
        raise Failure(str(error)) from error
    hosts = {host for host in (config.gateway.host, config.serve.http_host) if not _is_loopback(host)}
    if hosts and access.keys_file is None:
        err.print(
            f"[bold red]warning:[/] whoever reaches {', '.join(sorted(hosts))} may use this service: no keys are asked "
            "for. `draftfleet keys add NAME` makes one, `draftfleet serve --keys keys.json` asks for them."
        )
    if hosts and not config.is_https:
        err.print(
            "[bold yellow]warning:[/] keys and prompts can be read on the way: there is no TLS. Set "
            "gateway.tls.certificate and gateway.tls.key, or let a proxy in front speak TLS."
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _ready_line(fleet: LocalFleet) -> str:
    model = fleet.model()
    drafters = ", ".join(model.drafters) or "none"
    return (
        f"ready: {model.name} on {model.device} ({model.precision}, {model.exactness}) · drafters: {drafters} · "
        f"page {fleet.http_url}/ · HTTP {fleet.http_url}/v1 · gRPC {fleet.grpc_address}"
    )


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
