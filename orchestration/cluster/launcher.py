"""Files for `ray up`, from the topology of a fleet."""

from __future__ import annotations

from typing import Any

from orchestration.cluster import ports
from orchestration.cluster.hosts import Hosts
from orchestration.cluster.machines import Cloud, machine_for
from orchestration.config import FleetConfig
from orchestration.topology import Pool, PoolName

ENVIRONMENT = "~/draftfleet/env"  # virtual environment on every host
_BIN = f"{ENVIRONMENT}/bin"
TOKEN = "~/.ray/auth_token"
# A stopping node drains itself; this is how long it may take.
_DRAIN_S = 60
_UNREACHABLE = "192.0.2.1"  # set aside for documentation: no host ever has it


def cloud_file(cloud: Cloud, config: FleetConfig) -> dict[str, Any]:
    """Raises ValueError when the cloud has no machine for a pool."""
    counts = config.node_counts()
    node_types = {}
    for name, pool in config.topology.pools.items():
        node_types[name] = {
            "min_workers": 0 if name == "head" else counts[name].min,
            "max_workers": 0 if name == "head" else counts[name].max,
            "resources": {"CPU": pool.cpus, **({"GPU": pool.gpus} if pool.gpus else {}), **pool.resources},
            "labels": config.topology.node_labels(name),
            "node_config": _NODE_CONFIGS[cloud](machine_for(cloud, name, pool).name, pool),
        }
    return {
        "cluster_name": "draftfleet",
        "max_workers": sum(node["max_workers"] for node in node_types.values()),
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 10,
        "provider": _PROVIDERS[cloud],
        "auth": {"ssh_user": "ubuntu"},
        "head_node_type": "head",
        "available_node_types": node_types,
        **_software(),
        "head_start_ray_commands": [_stop(), _start_head()],
        "worker_start_ray_commands": [_stop(), _start_worker()],
    }


def on_premise_file(config: FleetConfig, hosts: Hosts, software: dict[str, Any] | None = None) -> dict[str, Any]:
    """`software` puts something else than the wheel on the hosts.

    Raises ValueError when hosts and topology do not fit.
    """
    hosts.check(config)
    workers = [address for name, addresses in hosts.pools.items() if name != "head" for address in addresses]
    choose = _choose_share(config, hosts)
    share = '--num-cpus=$CPUS --num-gpus=$GPUS --resources="$RESOURCES" --labels="$LABELS"'
    return {
        "cluster_name": "draftfleet",
        # Ray counts the head among the workers of such a cluster, and would leave the last one out.
        "max_workers": len(workers) + 1,
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 10,
        "provider": {
            "type": "local",
            "head_ip": hosts.head,
            "worker_ips": [*workers, _UNREACHABLE],
        },
        "auth": {"ssh_user": hosts.ssh_user, "ssh_private_key": hosts.ssh_private_key},
        **(software or _software()),
        "head_start_ray_commands": [_stop(), f"{choose} {_start_head()} {share}"],
        "worker_start_ray_commands": [_stop(), f"{choose} {_start_worker()} {share}"],
    }


def _choose_share(config: FleetConfig, hosts: Hosts) -> str:
    """Shell text that finds out which pool this host belongs to: all hosts are started by the same commands."""
    cases = []
    for name, addresses in hosts.pools.items():
        here = "|".join(f'*" {address} "*' for address in addresses)
        cases.append(f"{here}) {_share(config, name)} ;;")
    return f'case " $(hostname -I) " in {" ".join(cases)} *) echo "no pool names this host" >&2; exit 1 ;; esac;'


def _share(config: FleetConfig, name: PoolName) -> str:
    pool = config.topology.pools[name]
    labels = ",".join(f"{key}={value}" for key, value in config.topology.node_labels(name).items())
    resources = ", ".join(f'\\"{key}\\": {value}' for key, value in pool.resources.items())
    return f'CPUS={pool.cpus} GPUS={pool.gpus} LABELS={labels} RESOURCES="{{{resources}}}"'


def _software() -> dict[str, Any]:
    """The project's wheel, at the versions it was tested with. Paths are those of a checkout."""
    return {
        "file_mounts": {
            "~/draftfleet/dist": "dist",
            "~/draftfleet/constraints.txt": "constraints.txt",
            TOKEN: TOKEN,
        },
        "setup_commands": [
            f"chmod 600 {TOKEN}",
            f"test -x {_BIN}/python || python3 -m venv {ENVIRONMENT}",
            f"{_BIN}/pip install --quiet --force-reinstall --no-deps ~/draftfleet/dist/*.whl",
            f"{_BIN}/pip install --quiet -c ~/draftfleet/constraints.txt ~/draftfleet/dist/*.whl",
        ],
    }


def _stop() -> str:
    return f"{_BIN}/ray stop --grace-period {_DRAIN_S}"


def _start_head() -> str:
    options = {**ports.HEAD, **ports.EVERY_NODE}
    return (
        f"{_environment()} {_BIN}/ray start --head --autoscaling-config=~/ray_bootstrap_config.yaml "
        f"--dashboard-host=127.0.0.1 {_flags(options)}"
    )


def _start_worker() -> str:
    return f"{_environment()} {_BIN}/ray start --address=$RAY_HEAD_IP:{ports.GCS} {_flags(ports.EVERY_NODE)}"


def _environment() -> str:
    # Said on every node: a worker that is not told does not ask for the token, and never joins.
    return f"ulimit -n 65536; RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH={TOKEN} RAY_USAGE_STATS_ENABLED=0"


def _flags(options: dict[str, int]) -> str:
    return " ".join(f"--{name}={value}" for name, value in options.items())


def _aws_node(machine: str, pool: Pool) -> dict[str, Any]:
    # Without an ImageId Ray takes the region's deep learning image, which has the GPU driver.
    return {
        "InstanceType": machine,
        "BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 200, "VolumeType": "gp3"}}],
        "MetadataOptions": {"HttpTokens": "required"},
    }


def _gcp_node(machine: str, pool: Pool) -> dict[str, Any]:
    image = "common-cu128-ubuntu-2204-py310" if pool.gpus else "common-cpu-ubuntu-2204-py310"
    node: dict[str, Any] = {
        "machineType": machine,
        "disks": [
            {
                "boot": True,
                "autoDelete": True,
                "type": "PERSISTENT",
                "initializeParams": {
                    "diskSizeGb": 200,
                    "sourceImage": f"projects/deeplearning-platform-release/global/images/family/{image}",
                },
            }
        ],
    }
    if pool.gpus:
        node["metadata"] = {"items": [{"key": "install-nvidia-driver", "value": "True"}]}
        node["scheduling"] = [{"onHostMaintenance": "TERMINATE"}]
    return node


_NODE_CONFIGS = {"aws": _aws_node, "gcp": _gcp_node}
_PROVIDERS: dict[Cloud, dict[str, Any]] = {
    "aws": {
        "type": "aws",
        "region": "us-west-2",
        "availability_zone": "us-west-2a,us-west-2b",
        "cache_stopped_nodes": False,
    },
    "gcp": {
        "type": "gcp",
        "region": "us-central1",
        "availability_zone": "us-central1-a",
        "project_id": None,
    },
}
