"""draftfleet deploy"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from orchestration.cli import options
from orchestration.cli.cluster import TokenFile, read_token
from orchestration.cli.console import err, out, steps
from orchestration.cli.failure import Failure

# The nodes of a cluster are reached by their own addresses.
_CLUSTER_DEFAULTS = {"serve.http_host": "0.0.0.0"}


def deploy(
    config: options.ConfigFile = None,
    settings: options.Settings = None,
    dashboard: Annotated[
        str, typer.Option("--dashboard", help="Address of the cluster's Ray dashboard.")
    ] = "http://127.0.0.1:8265",
    token_file: TokenFile = None,
    timeout_s: Annotated[float, typer.Option("--timeout", min=1, help="Seconds until it has to be healthy.")] = 1800,
) -> None:
    """Start the service on a running Ray cluster, or update it, and wait until every replica is healthy.

    Serve on that cluster is draftfleet's alone: applications that were deployed there by a file are removed.
    """
    loaded = options.load_config(config, settings, {}, _CLUSTER_DEFAULTS)

    from orchestration.cluster.schema import exact_args, serve_schema
    from orchestration.cluster.serve_api import ClusterError, ServeApi

    for name, count in loaded.node_counts().items():
        err.print(f"pool {name}: {count.min} to {count.max} nodes")
    started = time.monotonic()
    try:
        with ServeApi(dashboard, read_token(token_file)) as api, steps("deploying") as step:
            state = api.deploy(serve_schema(loaded, exact_args(loaded)), timeout_s, step)
    except ClusterError as error:
        raise Failure(str(error)) from error
    out.print(f"healthy after {time.monotonic() - started:.0f} s: {state.progress}")
