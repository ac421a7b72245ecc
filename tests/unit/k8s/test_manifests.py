"""What Kubernetes, KubeRay and Ray would say to the manifests."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
import yaml
from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr
from ray.serve.schema import ServeDeploySchema

from orchestration.app import build
from orchestration.cluster.write import MONITORING, OVERLAYS
from orchestration.config import FleetConfig
from orchestration.sources import load
from orchestration.topology import LABEL
from tests.unit.k8s.rendering import NAMES, of_kind, ray_service, ray_service_validator, render, unknown_keys

CUSTOM = {"RayService", "PodMonitor", "ScrapeConfig", "PrometheusRule"}
KUBERNETES = ("1.30", "1.37")


@pytest.fixture(params=NAMES)
def overlay(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def fleet(overlay: str) -> FleetConfig:
    return load(OVERLAYS / overlay / "fleet.yaml", {}, {})


def test_there_are_overlays() -> None:
    assert NAMES == ["gpu-pools", "high-availability", "single-node-cpu"]


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_knows_every_key(overlay: str, version: str) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    checked = [manifest for manifest in render(overlay) if manifest["kind"] not in CUSTOM]
    assert {"Service", "NetworkPolicy", "PodDisruptionBudget", "ServiceAccount"} <= {m["kind"] for m in checked}
    for manifest in checked:
        validate.validate(manifest, version, strict=True)


def test_kuberay_knows_every_key(overlay: str) -> None:
    ray_service_validator().validate(ray_service(overlay))


def test_the_schema_would_find_a_misspelt_key() -> None:
    for path in (("upgradeStrategies",), ("rayClusterConfig", "headGroupSpec", "template", "spec", "tolerance")):
        service = ray_service("gpu-pools")
        node: Any = service["spec"]
        for part in path[:-1]:
            node = node[part]
        node[path[-1]] = {}
        with pytest.raises(jsonschema.ValidationError, match=path[-1]):
            ray_service_validator().validate(service)


def test_rays_autoscaler_reads_the_topology(overlay: str) -> None:
    config = fleet(overlay)
    service = ray_service(overlay)
    cluster = {"metadata": {"name": "c", "namespace": "n"}, "spec": service["spec"]["rayClusterConfig"]}
    types = _derive_autoscaling_config_from_ray_cr(cluster)["available_node_types"]
    counts = config.node_counts()
    assert set(types) == {"headgroup" if name == "head" else name for name in config.topology.pools}
    for name, pool in config.topology.pools.items():
        node = types["headgroup" if name == "head" else name]
        assert node["labels"] == config.topology.node_labels(name)
        assert node["resources"].get("GPU", 0) == pool.gpus
        assert node["resources"]["memory"] == pool.memory_gib << 30
        if name == "head":
            assert node["resources"]["CPU"] in (0, pool.cpus)
        else:
            assert node["resources"]["CPU"] == pool.cpus
            assert (node["min_workers"], node["max_workers"]) == (counts[name].min, counts[name].max)


def test_serve_knows_every_key(overlay: str) -> None:
    tree = yaml.safe_load(ray_service(overlay)["spec"]["serveConfigV2"])
    assert list(unknown_keys(ServeDeploySchema, tree)) == []
    ServeDeploySchema.model_validate(tree)
    (app,) = tree["applications"]
    assert load(None, app["args"], {}) == fleet(overlay)


def test_a_key_that_serve_drops_would_be_found() -> None:
    tree = {"http_optoins": {}, "applications": [{"name": "a", "deployments": [{"name": "D", "num_gpu": 1}]}]}
    assert list(unknown_keys(ServeDeploySchema, tree)) == ["http_optoins", "applications.deployments.num_gpu"]


def test_the_application_asks_for_what_its_pods_have(overlay: str) -> None:
    """Every deployment that is built selects a pool by its labels, and fits on a pod of it."""
    tree = yaml.safe_load(ray_service(overlay)["spec"]["serveConfigV2"])
    config = fleet(overlay)
    pools = {name: config.topology.node_labels(name) for name in config.topology.pools}
    seen = set()
    for deployment in deployments(build(tree["applications"][0]["args"])):
        options = deployment.ray_actor_options
        (pool,) = [name for name, labels in pools.items() if options["label_selector"].items() <= labels.items()]
        node = config.topology.pools[pool]
        assert options["num_cpus"] <= node.cpus
        assert options["num_gpus"] <= node.gpus
        seen.add(pool)
    assert seen | {"head"} == set(pools), "a pool holds nothing"


def deployments(app: Any) -> list[Any]:
    deployment = app._bound_deployment
    arguments = [argument for argument in deployment.init_args if hasattr(argument, "_bound_deployment")]
    return [deployment, *(found for argument in arguments for found in deployments(argument))]


def test_the_service_leads_to_gateways(overlay: str) -> None:
    (service,) = [m for m in of_kind(render(overlay), "Service") if m["metadata"]["name"] == "draftfleet"]
    cluster = ray_service(overlay)["spec"]["rayClusterConfig"]
    groups = {"head": cluster["headGroupSpec"], **{g["groupName"]: g for g in cluster["workerGroupSpecs"]}}
    # KubeRay adds this one.
    wanted = {key: value for key, value in service["spec"]["selector"].items() if key != "ray.io/serve"}
    chosen = {name for name, g in groups.items() if wanted.items() <= g["template"]["metadata"]["labels"].items()}
    assert chosen == {fleet(overlay).topology.home("gateway")}
    for name in chosen:
        named = {p["name"]: p["containerPort"] for p in groups[name]["template"]["spec"]["containers"][0]["ports"]}
        reached = {port["name"]: named[port["targetPort"]] for port in service["spec"]["ports"]}
        assert reached == {"http": fleet(overlay).serve.http_port, "grpc": fleet(overlay).gateway.grpc_port}


def test_one_gateway_is_asked_for_the_fleets_figures() -> None:
    """Each tells those of all, so that asking two would count twice."""
    manifests = render("high-availability")
    (config,) = of_kind(manifests, "ScrapeConfig")
    (service,) = [m for m in of_kind(manifests, "Service") if m["metadata"]["name"] == "draftfleet"]
    address = (
        f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc:{service['spec']['ports'][0]['port']}"
    )
    assert config["spec"]["staticConfigs"] == [{"targets": [address]}]


def test_dashboard_and_alerts_are_those_of_the_project() -> None:
    manifests = render("high-availability")
    (board,) = of_kind(manifests, "ConfigMap")
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert board["data"]["draftfleet.json"] == (MONITORING / "dashboard.json").read_text()
    (rules,) = of_kind(manifests, "PrometheusRule")
    assert rules["spec"] == yaml.safe_load((MONITORING / "alerts.yaml").read_text())


def test_pools_are_labelled_alike_for_ray_and_for_kubernetes(overlay: str) -> None:
    cluster = ray_service(overlay)["spec"]["rayClusterConfig"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        assert group["template"]["metadata"]["labels"][LABEL] == group["labels"][LABEL]
