"""Where the replicas of a cluster are and which GPUs they were given, as JSON. Runs as a driver of its own."""

from __future__ import annotations

import json
import sys
from typing import Any

import ray


def accelerators(replica: object) -> list[str]:
    """Runs inside the replica's process."""
    ids: list[str] = ray.get_runtime_context().get_accelerator_ids()["GPU"]
    return ids


def main(address: str) -> None:
    ray.init(address=address, namespace="serve", logging_level="ERROR", log_to_driver=False)
    labels = {node["NodeID"]: node["Labels"] for node in ray.nodes() if node["Alive"]}
    found: list[dict[str, Any]] = []
    for replica in json.load(sys.stdin):
        actor = ray.get_actor(replica["actor_name"])
        gpus = ray.get(actor.__ray_call__.remote(accelerators), timeout=30)
        found.append({"node": replica["node_id"], "labels": labels[replica["node_id"]], "gpus": gpus})
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
