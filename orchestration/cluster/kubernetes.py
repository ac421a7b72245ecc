"""RayService and disruption budgets for Kubernetes, from the topology of a fleet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from orchestration.cluster import ports
from orchestration.cluster.pods import pod_spec
from orchestration.cluster.schema import serve_schema
from orchestration.config import FleetConfig
from orchestration.topology import LABEL, PoolName

NAME = "draftfleet"
LABELS = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/part-of": NAME}
GATEWAY_LABEL = "draftfleet/gateway"
RAY_VERSION = "2.60.0"  # of the image
_IDLE_S = 300  # a pod that holds no replica for so long goes


_AUTOSCALER = {
    "enableInTreeAutoscaling": True,
    "autoscalerOptions": {
        "version": "v2",
        "upscalingMode": "Default",
        "idleTimeoutSeconds": _IDLE_S,
        "resources": {
            "requests": {"cpu": "500m", "memory": "512Mi"},
            "limits": {"cpu": "500m", "memory": "512Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
        },
    },
}


def objects(config: FleetConfig, tree: Mapping[str, Any]) -> list[dict[str, Any]]:
    """`tree` is what `config` was read from. Raises ValueError for a fleet without pools."""
    if not config.topology.pools:
        raise ValueError("topology.pools: Kubernetes needs at least the pool `head`")
    return [ray_service(config, tree), *disruption_budgets(config)]


def ray_service(config: FleetConfig, tree: Mapping[str, Any]) -> dict[str, Any]:
    """A change of the cluster's shape brings up a second cluster before the first goes; a change of the application
    alone replaces its replicas in place."""
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": {"name": NAME, "labels": LABELS},
        "spec": {
            "upgradeStrategy": {"type": "NewCluster"},
            # Answers that run on the old cluster end there.
            "rayClusterDeletionDelaySeconds": round(_grace_s(config)),
            # Gateways are reached by a service of our own, which only those that are ready belong to.
            "excludeHeadPodFromServeSvc": "gateway" in config.topology.pools,
            "serveConfigV2": yaml.safe_dump(serve_schema(config, tree), sort_keys=False, width=100),
            "rayClusterConfig": _ray_cluster(config),
        },
    }


def disruption_budgets(config: FleetConfig) -> list[dict[str, Any]]:
    """Pods that a drained machine may not take. Counts of pods that must stay: Ray's pods have no controller whose
    size Kubernetes could compute shares of. The head is moved by hand."""
    budgets = []
    for name, count in config.node_counts().items():
        stay = 1 if name == "head" else count.min - 1
        if stay < 1:
            continue  # a pool of one could never be drained
        budgets.append(
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": f"{NAME}-{name}", "labels": LABELS},
                "spec": {
                    "minAvailable": stay,
                    "unhealthyPodEvictionPolicy": "AlwaysAllow",
                    "selector": {"matchLabels": {"app.kubernetes.io/part-of": NAME, LABEL: name}},
                },
            }
        )
    return budgets


def _ray_cluster(config: FleetConfig) -> dict[str, Any]:
    counts = config.node_counts()
    runs_replicas = "gateway" not in config.topology.pools
    return {
        "rayVersion": RAY_VERSION,
        "authOptions": {"mode": "token"},
        **(_AUTOSCALER if any(count.max > count.min for count in counts.values()) else {}),
        "headGroupSpec": {
            "rayStartParams": {
                # Replicas on the head would go with it; where there are gateways, nothing has to run here.
                "num-cpus": str(config.topology.pools["head"].cpus if runs_replicas or _needs_head(config) else 0),
                "dashboard-host": "0.0.0.0",
                **_start_params({**ports.HEAD, **ports.EVERY_NODE}),
            },
            "labels": config.topology.node_labels("head"),
            **({"resources": _group_resources(config, "head")} if config.topology.pools["head"].resources else {}),
            "template": _template(config, "head"),
        },
        "workerGroupSpecs": [
            {
                "groupName": name,
                "replicas": counts[name].min,
                "minReplicas": counts[name].min,
                "maxReplicas": counts[name].max,
                "labels": config.topology.node_labels(name),
                **({"resources": _group_resources(config, name)} if config.topology.pools[name].resources else {}),
                "rayStartParams": _start_params(ports.EVERY_NODE),
                "template": _template(config, name),
            }
            for name in config.topology.pools
            if name != "head"
        ],
    }


def _needs_head(config: FleetConfig) -> bool:
    return any(config.topology.home(d.home_of) == "head" for d in config.demands() if d.max_replicas)


def _group_resources(config: FleetConfig, name: PoolName) -> dict[str, str]:
    """All of them, since naming some makes Ray look nowhere else."""
    pool = config.topology.pools[name]
    named = {"CPU": pool.cpus, **({"GPU": pool.gpus} if pool.gpus else {}), **pool.resources}
    return {key: str(value) for key, value in named.items()}


def _template(config: FleetConfig, name: PoolName) -> dict[str, Any]:
    has_gateway = config.topology.home("gateway") == name
    return {
        "metadata": {
            "labels": {
                **LABELS,
                LABEL: name,
                **({GATEWAY_LABEL: "true"} if has_gateway else {}),
            }
        },
        "spec": pod_spec(config, name, grace_s=round(_grace_s(config)), has_gateway=has_gateway),
    }


def _grace_s(config: FleetConfig) -> float:
    """Ray drains a node for up to 30 s, then replicas, and the doors in them, end what they began."""
    drafters = [pool.drain_s for pool in config.drafters.values()]
    return 30.0 + config.serve.drain_s + max([config.gateway.drain_timeout_s, config.engine.drain_s, *drafters]) + 15.0


def _start_params(options: dict[str, int]) -> dict[str, str]:
    return {name: str(value) for name, value in options.items()}
