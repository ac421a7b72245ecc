"""What the pods of a pool look like."""

from __future__ import annotations

from typing import Any

from orchestration.cluster import ports
from orchestration.config import FleetConfig
from orchestration.topology import PoolName

IMAGE = "draftfleet"  # overlays say from where, and which version
GPU_LABEL = "draftfleet/gpu"  # of Kubernetes nodes with GPUs: their type, by Ray's names
CACHE = "/cache"
ACCESS = "/etc/draftfleet"
_USER = 1000

_RAYLET = ("/api/local_raylet_healthz", ports.AGENT)
_GCS = ("/api/gcs_healthz", ports.DASHBOARD)

_UNPRIVILEGED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}


def pod_spec(config: FleetConfig, name: PoolName, *, grace_s: int, has_gateway: bool) -> dict[str, Any]:
    """The model is in place before Ray starts, and a gateway is ready when a target answers through it."""
    pool = config.topology.pools[name]
    size = {"cpu": str(pool.cpus), "memory": f"{pool.memory_gib}Gi"}
    gpus = {"nvidia.com/gpu": str(pool.gpus)} if pool.gpus else {}
    mounts = [{"name": "cache", "mountPath": CACHE}]
    # With HTTPS, Serve's proxies on all nodes want the certificate.
    has_access = has_gateway or config.is_https
    if has_access:
        mounts.append({"name": "access", "mountPath": ACCESS, "readOnly": True})  # type: ignore[dict-item]
    digest = [] if config.model.sha256 is None else ["--sha256", config.model.sha256]
    environment = [
        {"name": "XDG_CACHE_HOME", "value": CACHE},
        {"name": "HF_HOME", "value": f"{CACHE}/huggingface"},
        {"name": "RAY_USAGE_STATS_ENABLED", "value": "0"},
    ]
    spec: dict[str, Any] = {
        "serviceAccountName": "draftfleet-head" if name == "head" else "draftfleet-worker",
        "terminationGracePeriodSeconds": grace_s,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "initContainers": [
            {
                "name": "fetch-model",
                "image": IMAGE,
                "command": ["draftfleet", "models", "fetch", config.model.target, *digest],
                "env": environment,
                "resources": {
                    "requests": {"cpu": "1", "memory": "4Gi"},
                    "limits": {"cpu": "1", "memory": "4Gi"},
                },
                "securityContext": _UNPRIVILEGED,
                "volumeMounts": mounts[:1],
            }
        ],
        "containers": [
            {
                "name": "ray-head" if name == "head" else "ray-worker",
                "image": IMAGE,
                "env": environment,
                "ports": _ports(config, name, has_gateway),
                "resources": {"requests": {**size, **gpus}, "limits": {**size, **gpus}},
                "securityContext": _UNPRIVILEGED,
                "volumeMounts": mounts,
                "startupProbe": {**_asks(*_RAYLET), "periodSeconds": 5, "failureThreshold": 60},
                "livenessProbe": {**_asks(*_RAYLET), "periodSeconds": 10, "failureThreshold": 12},
                "readinessProbe": _ready(config, name, has_gateway),
            }
        ],
        "volumes": [
            {"name": "cache", "persistentVolumeClaim": {"claimName": "draftfleet-models"}},
            *(
                [{"name": "access", "secret": {"secretName": "draftfleet-access", "optional": True}}]
                if has_access
                else []
            ),
        ],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"draftfleet/pool": name}},
            }
        ],
    }
    if pool.gpus:
        spec["nodeSelector"] = {GPU_LABEL: pool.gpu_type}
        spec["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    return spec


def _ports(config: FleetConfig, name: PoolName, has_gateway: bool) -> list[dict[str, Any]]:
    found = [("metrics", ports.METRICS), ("agent", ports.AGENT)]
    if name == "head":
        found += [("gcs-server", ports.GCS), ("dashboard", ports.DASHBOARD)]
    if has_gateway or name == "head":  # KubeRay makes no service without a head that names these
        found += [("serve", config.serve.http_port), ("serve-grpc", config.gateway.grpc_port)]
    return [{"name": label, "containerPort": port} for label, port in found]


def _asks(path: str, port: int, *, is_https: bool = False) -> dict[str, Any]:
    secure = {"scheme": "HTTPS"} if is_https else {}
    return {"httpGet": {"path": path, "port": port, **secure}, "timeoutSeconds": 5}


def _ready(config: FleetConfig, name: PoolName, has_gateway: bool) -> dict[str, Any]:
    """Named here for every pool: KubeRay's own asks each pod for HTTP, which most of them do not speak."""
    if name == "head":  # it must be ready before it is told what to serve
        return {**_asks(*_GCS), "periodSeconds": 5, "failureThreshold": 3}
    if has_gateway:
        asks = _asks("/readyz", config.serve.http_port, is_https=config.is_https)
        return {**asks, "periodSeconds": 5, "failureThreshold": 2}
    return {**_asks(*_RAYLET), "periodSeconds": 5, "failureThreshold": 3}
