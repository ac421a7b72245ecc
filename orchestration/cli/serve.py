"""draftfleet serve"""

from __future__ import annotations

import signal
import time
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.cli import options
from orchestration.cli.console import err, fetch_model, out, steps
from orchestration.cli.failure import Failure

if TYPE_CHECKING:
    from orchestration.config import FleetConfig


def serve(
    target: options.Target = None,
    http_port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port of the HTTP API [8000].")] = None,
    grpc_port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port of the gRPC API [9000].")] = None,
    host: Annotated[
        str | None, typer.Option(help="Interface of both APIs [127.0.0.1]; 0.0.0.0 lets the whole network in.")
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
    }
    loaded = options.load_config(config, settings, flags, options.LOCAL_DEFAULTS)
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
        out.print(f"{_ready_line(fleet.http_url, fleet.grpc_address)} · started in {time.monotonic() - started:.0f} s")
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


def _ready_line(http_url: str, grpc_address: str) -> str:
    from orchestration.cli.client import Client

    with Client(grpc_address) as client:
        model = client.model()
    drafters = ", ".join(model.drafters) or "none"
    return (
        f"ready: {model.name} on {model.device} ({model.precision}, {model.exactness}) · drafters: {drafters} · "
        f"page {http_url}/ · HTTP {http_url}/v1 · gRPC {grpc_address}"
    )


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
