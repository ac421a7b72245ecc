"""The Serve application as a cluster is told of it: what `serve deploy`, KubeRay and Ray's REST API take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestration.config import FleetConfig

NAME = "draftfleet"  # of the application


def serve_schema(config: FleetConfig, args: Mapping[str, Any]) -> dict[str, Any]:
    """`args` are the settings as the application is to be built from; `config` is what they come to."""
    return {
        # Without gateways elsewhere nobody asks for HTTP elsewhere.
        "proxy_location": "EveryNode" if "gateway" in config.topology.pools else "HeadOnly",
        "http_options": config.http_options(),
        "applications": [
            {
                "name": NAME,
                "route_prefix": "/",
                "import_path": "orchestration.app:build",
                "args": dict(args),
            }
        ],
    }


def exact_args(config: FleetConfig) -> dict[str, Any]:
    """Every setting, so that neither defaults nor the environment over there have a say."""
    return config.model_dump(mode="json")
