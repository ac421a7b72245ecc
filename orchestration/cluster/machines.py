"""Machine types of clouds, and the smallest one that makes a node of a pool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from orchestration.topology import Pool

Cloud = Literal["aws", "gcp"]


@dataclass(frozen=True, slots=True)
class Machine:
    name: str
    cpus: int
    memory_gib: int
    gpus: int = 0
    gpu_type: str | None = None


# Cheapest first where two would do.
MACHINES: dict[Cloud, tuple[Machine, ...]] = {
    "aws": (
        Machine("c7i.xlarge", 4, 8),
        Machine("m7i.xlarge", 4, 16),
        Machine("c7i.2xlarge", 8, 16),
        Machine("m7i.2xlarge", 8, 32),
        Machine("m7i.4xlarge", 16, 64),
        Machine("m7i.8xlarge", 32, 128),
        Machine("g6.xlarge", 4, 16, 1, "L4"),
        Machine("g6.2xlarge", 8, 32, 1, "L4"),
        Machine("g6.4xlarge", 16, 64, 1, "L4"),
        Machine("g6.12xlarge", 48, 192, 4, "L4"),
        Machine("g5.xlarge", 4, 16, 1, "A10G"),
        Machine("g5.2xlarge", 8, 32, 1, "A10G"),
        Machine("g5.4xlarge", 16, 64, 1, "A10G"),
        Machine("g5.12xlarge", 48, 192, 4, "A10G"),
        Machine("g6e.xlarge", 4, 32, 1, "L40S"),
        Machine("g6e.2xlarge", 8, 64, 1, "L40S"),
        Machine("g6e.4xlarge", 16, 128, 1, "L40S"),
        Machine("p4d.24xlarge", 96, 1152, 8, "A100"),
        Machine("p5.4xlarge", 16, 256, 1, "H100"),
        Machine("p5.48xlarge", 192, 2048, 8, "H100"),
    ),
    "gcp": (
        Machine("n2-standard-4", 4, 16),
        Machine("n2-standard-8", 8, 32),
        Machine("n2-standard-16", 16, 64),
        Machine("n2-standard-32", 32, 128),
        Machine("g2-standard-4", 4, 16, 1, "L4"),
        Machine("g2-standard-8", 8, 32, 1, "L4"),
        Machine("g2-standard-16", 16, 64, 1, "L4"),
        Machine("g2-standard-48", 48, 192, 4, "L4"),
        Machine("a2-highgpu-1g", 12, 85, 1, "A100"),
        Machine("a2-highgpu-2g", 24, 170, 2, "A100"),
        Machine("a2-highgpu-8g", 96, 680, 8, "A100"),
        Machine("a3-highgpu-1g", 26, 234, 1, "H100"),
        Machine("a3-highgpu-8g", 208, 1872, 8, "H100"),
    ),
}


def machine_for(cloud: Cloud, name: str, pool: Pool) -> Machine:
    """The first machine with this many GPUs of this type, and with enough of the rest. Raises ValueError."""
    for machine in MACHINES[cloud]:
        has_gpus = (machine.gpus, machine.gpu_type) == (pool.gpus, pool.gpu_type)
        if has_gpus and machine.cpus >= pool.cpus and machine.memory_gib >= pool.memory_gib:
            return machine
    gpus = f"{pool.gpus} {pool.gpu_type}" if pool.gpus else "no GPU"
    raise ValueError(
        f"topology.pools.{name}: no machine of {cloud} that is known here has {pool.cpus} CPUs, {pool.memory_gib} GiB "
        f"and {gpus}; change the pool, or add a machine to orchestration/cluster/machines.py"
    )
