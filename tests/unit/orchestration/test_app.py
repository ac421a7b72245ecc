"""The application as `serve build` writes it down."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.serve.schema import ServeDeploySchema

from orchestration.app import build, startable_pools
from orchestration.sources import ConfigError, load

SERVE = Path(sys.executable).with_name("serve")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """An app file as a user would have it, through `serve build`."""
    folder = tmp_path_factory.mktemp("app")
    (folder / "fleet.yaml").write_text(
        yaml.safe_dump(
            {
                "engine": {"threads": 3},
                "drafters": {
                    "lookup": {"replicas": 2, "num_gpus": 0.5, "resources": {"lookup_node": 1}},
                    "mtp": {"replicas": 0},
                    "dfly": {"replicas": 0},
                },
                "serve": {"drain_s": 7},
            }
        )
    )
    (folder / "my_app.py").write_text(
        "from orchestration.app import build\n"
        "app = build({'config': 'fleet.yaml', 'placement.target.num_gpus': '1', 'gateway': {'grpc_port': 9100}})\n"
    )
    subprocess.run(
        [SERVE, "build", "my_app:app", "--app-dir", str(folder), "-o", str(folder / "out.yaml")],
        check=True,
        cwd=folder,
        capture_output=True,
        timeout=120,
    )
    tree: dict[str, Any] = yaml.safe_load((folder / "out.yaml").read_text())
    ServeDeploySchema.model_validate(tree)
    return {deployment["name"]: deployment for deployment in tree["applications"][0]["deployments"]}


def test_every_deployment_is_there(written: dict[str, Any]) -> None:
    assert set(written) == {"Dcut", "Target", "Drafter-lookup", "Router", "Gateway"}
    assert written["Drafter-lookup"]["num_replicas"] == 2


def test_resources_and_threads_are_pinned(written: dict[str, Any]) -> None:
    target = written["Target"]["ray_actor_options"]
    assert target["num_gpus"] == 1.0
    assert target["runtime_env"]["env_vars"]["OMP_NUM_THREADS"] == "3"
    drafter = written["Drafter-lookup"]["ray_actor_options"]
    assert drafter["num_gpus"] == 0.5
    assert drafter["resources"] == {"lookup_node": 1}
    for deployment in written.values():
        assert int(deployment["ray_actor_options"]["runtime_env"]["env_vars"]["OMP_NUM_THREADS"]) >= 1


def test_replicas_are_watched_and_drained(written: dict[str, Any]) -> None:
    for name, deployment in written.items():
        assert deployment["health_check_period_s"] == 1.0, name
    for name in ("Target", "Drafter-lookup", "Router", "Gateway"):
        assert written[name]["graceful_shutdown_timeout_s"] == 7.0


def test_wrong_arguments_are_told() -> None:
    with pytest.raises(ConfigError, match=r"did you mean engine\.max_sequences"):
        build({"engine.max_sequence": "3"})
    with pytest.raises(ConfigError, match="cannot be read"):
        build({"config": "/no/such/file.yaml"})


def test_pools_without_weights_for_the_target_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is shipped for this target; a pool whose weights are named starts, and so may fail and say why."""
    model = {"model.target": "owner/some-model-7b"}
    assert list(startable_pools(load(None, model, {}))) == ["lookup"]
    told = [record.getMessage() for record in caplog.records]
    assert told == [f"drafter {kind} is not started: it has no weights for some-model-7b" for kind in ("mtp", "dfly")]
    named = {"drafters.mtp.neural.weights": str(tmp_path), "drafters.lookup.replicas": 0}
    assert list(startable_pools(load(None, model | named, {}))) == ["mtp"]


def test_shipped_weights_start_their_pool(tmp_path: Path) -> None:
    checkpoint = tmp_path / "some-model-7b" / "dfly"
    checkpoint.mkdir(parents=True)
    (checkpoint / "config.json").write_text("{}")
    config = load(None, {"model.target": "owner/Some-Model-7B"}, {})
    assert list(startable_pools(config, weights_root=tmp_path)) == ["lookup", "dfly"]
