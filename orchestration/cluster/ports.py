"""Ports of Ray's own services on every node, pinned so that firewalls can be told of them."""

from __future__ import annotations

GCS = 6379
DASHBOARD = 8265
CLIENT = 10001
METRICS = 8080
AGENT = 52365  # answers /api/local_raylet_healthz

# Options of `ray start`, without their dashes, as KubeRay's rayStartParams want them too.
EVERY_NODE: dict[str, int] = {
    "node-manager-port": 10010,
    "object-manager-port": 10011,
    "runtime-env-agent-port": 10012,
    "dashboard-agent-grpc-port": 10013,
    "dashboard-agent-listen-port": AGENT,
    "metrics-export-port": METRICS,
    "min-worker-port": 10020,
    "max-worker-port": 10219,
}
HEAD: dict[str, int] = {
    "port": GCS,
    "dashboard-port": DASHBOARD,
    # A second door for code that Ray always opens, and nothing here uses: firewalls keep it shut.
    "ray-client-server-port": CLIENT,
}
