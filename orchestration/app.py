"""The Serve application, from settings to bound deployments.

serve run orchestration.app:build engine.max_sequences=8
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from ray.serve import Application, Deployment

from orchestration.config import AutoscalingConfig, FleetConfig, Placement, ScaledPlacement, pool_of
from orchestration.sources import load, parse_flag
from orchestration.topology import PoolName
from services.dcut.deployment import DcutActor
from services.drafters.config import DrafterConfig
from services.drafters.deployment import DrafterDeployment
from services.drafters.neural.shipped import ROOT as WEIGHTS_ROOT
from services.drafters.neural.shipped import shipped_weights, target_name
from services.drafters.registry import kind_of
from services.gateway.deployment import GatewayDeployment
from services.router.deployment import RouterDeployment
from services.target.deployment import TargetDeployment

_log = logging.getLogger(__name__)

# Load reports alone would fill an access log with a line for each replica, four times a second.
_LOGGING = {"enable_access_log": False}


def build(args: Mapping[str, Any]) -> Application:
    """For `serve run`, `serve build` and `serve deploy`: arguments are settings, dotted or nested.

    The argument `config` names a YAML file that comes before them. Raises ConfigError.
    """
    flags = dict(args)
    path = flags.pop("config", None)
    # `serve run` hands every value over as text.
    parsed = dict(
        parse_flag(f"{key}={value}") if isinstance(value, str) else (key, value) for key, value in flags.items()
    )
    return application(load(Path(path) if path is not None else None, parsed))


def application(config: FleetConfig) -> Application:
    """The deployments, each with its part of the settings, bound to each other."""
    model = _plain(config.model)
    place = config.placement
    dcut = (
        _deployment(DcutActor)
        .options(
            name="Dcut",
            logging_config=_LOGGING,
            ray_actor_options=_actor_options(
                Placement(num_cpus=place.dcut_num_cpus), config.topology.selector("gateway"), threads=1
            ),
        )
        .bind(_plain(config.dcut))
    )
    threads = config.engine.threads or max(1, int(place.target.num_cpus))
    target = (
        _deployment(TargetDeployment)
        .options(name="Target", **_options(config, "target", place.target, threads))
        .bind(_plain(config.engine), model, dcut)
    )
    drafters = [
        _deployment(DrafterDeployment)
        .options(name=f"Drafter-{kind}", **_options(config, pool_of(kind), _placement(pool), pool.threads))
        .bind(_plain(pool), model, dcut)
        for kind, pool in startable_pools(config).items()
    ]
    router = (
        _deployment(RouterDeployment)
        .options(name="Router", **_options(config, "gateway", place.router, threads=1))
        .bind(_plain(config.router), dcut, target, *drafters)
    )
    # Each listens on the same port of its node.
    spread: dict[str, Any] = {"max_replicas_per_node": 1} if config.gateway.grpc_port else {}
    return (
        _deployment(GatewayDeployment)
        .options(
            name="Gateway",
            **spread,
            **_options(config, "gateway", place.gateway, threads=1),
        )
        .bind(_plain(config.gateway), model, dcut, router)
    )


def startable_pools(config: FleetConfig, weights_root: Path = WEIGHTS_ROOT) -> dict[str, DrafterConfig]:
    """The drafter pools that have replicas, and weights where their kind needs some."""
    name = target_name(config.model.target)
    folder = Path(config.model.target).expanduser()
    pools = {}
    for kind, pool in config.drafters.items():
        if not pool.replicas:
            continue
        is_missing = kind_of(pool).has_weights and pool.neural.weights is None
        if is_missing and shipped_weights(kind, name, folder if folder.is_dir() else None, weights_root) is None:
            _log.warning("drafter %s is not started: it has no weights for %s", kind, name)
            continue
        pools[kind] = pool
    return pools


def _placement(pool: DrafterConfig) -> ScaledPlacement:
    return ScaledPlacement(
        replicas=pool.replicas,
        max_replicas=pool.max_replicas,
        num_cpus=pool.num_cpus,
        num_gpus=pool.num_gpus,
        resources=pool.resources,
    )


def _deployment(decorated: object) -> Deployment:
    """Serve's decorator tells type checkers that it returns the class."""
    assert isinstance(decorated, Deployment)
    return decorated


def _plain(config: BaseModel) -> dict[str, Any]:
    return config.model_dump(mode="json")


def _options(config: FleetConfig, home_of: PoolName, place: Placement, threads: int) -> dict[str, Any]:
    serve = config.serve
    return {
        **_replicas(config.autoscaling, place),
        "max_ongoing_requests": place.max_ongoing_requests,
        "health_check_period_s": serve.health_check_period_s,
        "health_check_timeout_s": serve.health_check_timeout_s,
        "graceful_shutdown_timeout_s": serve.drain_s,
        "graceful_shutdown_wait_loop_s": 0.2,
        "logging_config": _LOGGING,
        "ray_actor_options": _actor_options(place, config.topology.selector(home_of), threads),
    }


def _replicas(autoscaling: AutoscalingConfig, place: Placement) -> dict[str, Any]:
    if not isinstance(place, ScaledPlacement) or place.max_replicas in (None, place.replicas):
        return {"num_replicas": place.replicas}
    return {
        "autoscaling_config": {
            "min_replicas": place.replicas,
            "initial_replicas": place.replicas,
            "max_replicas": place.max_replicas,
            "upscale_delay_s": autoscaling.upscale_delay_s,
            "downscale_delay_s": autoscaling.downscale_delay_s,
            # Rounds do not pass through Serve, so that its own count of requests says nothing.
            "metrics_interval_s": 1.0,
            "look_back_period_s": autoscaling.look_back_s,
            "policy": {
                "policy_function": "orchestration.autoscaling:ByOccupancy",
                "policy_kwargs": {"occupancy": autoscaling.occupancy},
            },
        }
    }


def _actor_options(place: Placement, selector: Mapping[str, str], threads: int) -> dict[str, Any]:
    # Threads of several processes on the same cores spin against each other: so each replica's are counted out,
    # and those that wait soon sleep (here a step beside a busy core took 65 ms so, 500 ms by default).
    return {
        "num_cpus": place.num_cpus,
        "num_gpus": place.num_gpus,
        "resources": dict(place.resources),
        "label_selector": dict(selector),
        "runtime_env": {
            "env_vars": {
                "OMP_NUM_THREADS": str(threads),
                "GOMP_SPINCOUNT": "100",
                "TOKENIZERS_PARALLELISM": "false",
            }
        },
    }
