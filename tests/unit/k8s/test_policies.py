"""What every manifest must hold to: rights, limits, probes, time to end, and who may speak to whom."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from orchestration.cluster import kubernetes, ports
from orchestration.cluster.kubernetes import GATEWAY_LABEL
from orchestration.cluster.pods import GPU_LABEL
from orchestration.cluster.write import OVERLAYS
from orchestration.config import FleetConfig
from orchestration.sources import load
from orchestration.topology import LABEL
from tests.unit.k8s.network import Place, allowed
from tests.unit.k8s.rendering import NAMES, of_kind, pod_specs, ray_service, render

NODE_DRAIN_S = 30  # what Ray takes at most before it stops replicas
OURS = {"kubernetes.io/metadata.name": "draftfleet"}
OUTSIDE = Place({}, None)
OPERATOR = Place({"app.kubernetes.io/component": "kuberay-operator"}, {"kubernetes.io/metadata.name": "kuberay"})
PROMETHEUS = Place({"app.kubernetes.io/name": "prometheus"}, {"kubernetes.io/metadata.name": "monitoring"})
NEIGHBOUR = Place({"app": "another"}, {"kubernetes.io/metadata.name": "default"})


@pytest.fixture(params=NAMES)
def overlay(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def fleet(overlay: str) -> FleetConfig:
    return load(OVERLAYS / overlay / "fleet.yaml", {}, {})


def test_nobody_is_root_or_may_become_it(overlay: str) -> None:
    for name, spec in pod_specs(overlay):
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"]["drop"] == ["ALL"]
            assert "privileged" not in context
        for key in ("hostNetwork", "hostPID", "hostIPC"):
            assert key not in spec
        assert not any("hostPath" in volume for volume in spec["volumes"])


def test_everything_is_limited(overlay: str) -> None:
    for name, spec in pod_specs(overlay):
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            resources = container["resources"]
            assert {"cpu", "memory"} <= resources["limits"].keys(), name
            # Ray gives away what the limits say: a pod that was promised less would be throttled.
            assert resources["limits"] == resources["requests"]


def test_everything_is_probed(overlay: str) -> None:
    for name, spec in pod_specs(overlay):
        for container in spec["containers"]:
            assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys(), name
    config = fleet(overlay)
    ready = {name: spec["containers"][0]["readinessProbe"]["httpGet"] for name, spec in ray_pods(overlay)}
    # A head has to be ready before it is told what to serve.
    assert ready.pop("head")["port"] == ports.DASHBOARD
    for name, probe in ready.items():
        gateway = {"path": "/readyz", "port": config.serve.http_port}
        assert probe == (gateway if name == "gateway" else {"path": "/api/local_raylet_healthz", "port": ports.AGENT})


def ray_pods(overlay: str) -> list[tuple[str, dict[str, Any]]]:
    return [(name, spec) for name, spec in pod_specs(overlay) if name in fleet(overlay).topology.pools]


def test_pods_have_time_to_drain(overlay: str) -> None:
    config = fleet(overlay)
    longest = max(config.gateway.drain_timeout_s, config.engine.drain_s, *(d.drain_s for d in config.drafters.values()))
    for name, spec in ray_pods(overlay):
        assert spec["terminationGracePeriodSeconds"] > NODE_DRAIN_S + config.serve.drain_s + longest, name
    assert ray_service(overlay)["spec"]["rayClusterDeletionDelaySeconds"] > config.serve.drain_s + longest


def test_gpu_pods_find_their_gpus_and_others_leave_them_alone(overlay: str) -> None:
    config = fleet(overlay)
    for name, spec in ray_pods(overlay):
        pool = config.topology.pools[name]  # type: ignore[index]
        limits = spec["containers"][0]["resources"]["limits"]
        assert int(limits.get("nvidia.com/gpu", 0)) == pool.gpus
        if pool.gpus:
            assert spec["nodeSelector"] == {GPU_LABEL: pool.gpu_type}
            assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in spec["tolerations"]
        else:
            assert "tolerations" not in spec


def test_models_are_there_before_ray_starts(overlay: str) -> None:
    for name, spec in ray_pods(overlay):
        (fetch,) = spec["initContainers"]
        assert fetch["command"][:3] == ["draftfleet", "models", "fetch"], name
        paths = {tuple(sorted(mount.items())) for mount in fetch["volumeMounts"]}
        assert paths <= {tuple(sorted(mount.items())) for mount in spec["containers"][0]["volumeMounts"]}


def test_disruptions_leave_enough(overlay: str) -> None:
    """`maxUnavailable` and shares need a controller that Kubernetes can ask for its size: Ray's pods have none."""
    budgets = {}
    for budget in of_kind(render(overlay), "PodDisruptionBudget"):
        spec = budget["spec"]
        assert "maxUnavailable" not in spec
        assert isinstance(spec["minAvailable"], int)
        if (pool := spec["selector"]["matchLabels"].get(LABEL)) is not None:
            budgets[pool] = spec["minAvailable"]
    counts = fleet(overlay).node_counts()
    assert budgets.pop("head") == 1
    assert budgets == {name: count.min - 1 for name, count in counts.items() if name != "head" and count.min > 1}


def test_accounts_have_no_rights_of_ours(overlay: str) -> None:
    manifests = render(overlay)
    kinds = {manifest["kind"] for manifest in manifests}
    assert not kinds & {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"}
    accounts = {m["metadata"]["name"]: m for m in of_kind(manifests, "ServiceAccount")}
    for name, spec in ray_pods(overlay):
        assert spec["serviceAccountName"] == ("draftfleet-head" if name == "head" else "draftfleet-worker")
    assert accounts["draftfleet-worker"]["automountServiceAccountToken"] is False


def test_secrets_are_named_and_not_shown(overlay: str) -> None:
    for name, spec in pod_specs(overlay):
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            for variable in container.get("env", ()):
                words = ("PASSWORD", "TOKEN", "KEY", "SECRET")
                assert not ("value" in variable and any(word in variable["name"] for word in words)), name
    volumes = {v["name"]: v for _, spec in ray_pods(overlay) for v in spec["volumes"]}
    assert volumes["access"]["secret"] == {"secretName": "draftfleet-access", "optional": True}


def test_keys_are_where_they_are_needed() -> None:
    """In the pods of gateways; and with HTTPS in all, since Serve's proxies there want the certificate."""
    tree = yaml.safe_load((OVERLAYS / "gpu-pools" / "fleet.yaml").read_text())
    files = {"gateway.tls.certificate": "/etc/draftfleet/tls.crt", "gateway.tls.key": "/etc/draftfleet/tls.key"}
    for flags, expected in (({}, {"gateway"}), (files, None), ({**files, "serve.http_tls": False}, {"gateway"})):
        config = load(OVERLAYS / "gpu-pools" / "fleet.yaml", flags, {})
        groups = kubernetes.ray_service(config, tree)["spec"]["rayClusterConfig"]["workerGroupSpecs"]
        mounted = {g["groupName"] for g in groups if "access" in {v["name"] for v in g["template"]["spec"]["volumes"]}}
        assert mounted == ({g["groupName"] for g in groups} if expected is None else expected)


def test_the_access_component_makes_the_secret_that_pods_name() -> None:
    (secret,) = of_kind(render("gpu-pools", "access"), "Secret")
    assert secret["metadata"]["name"] == "draftfleet-access"
    assert secret["metadata"]["namespace"] == "draftfleet"
    assert set(secret["data"]) == {"keys.json", "tls.crt", "tls.key"}


def test_upgrades_bring_the_new_before_the_old_goes(overlay: str) -> None:
    assert ray_service(overlay)["spec"]["upgradeStrategy"] == {"type": "NewCluster"}


def test_the_autoscaler_is_there_where_something_grows(overlay: str) -> None:
    cluster = ray_service(overlay)["spec"]["rayClusterConfig"]
    grows = any(count.max > count.min for count in fleet(overlay).node_counts().values())
    assert cluster.get("enableInTreeAutoscaling", False) == grows == (overlay != "single-node-cpu")
    if grows:
        options = cluster["autoscalerOptions"]
        assert options["version"] == "v2"
        assert options["resources"]["limits"].keys() == {"cpu", "memory"}
        assert options["securityContext"]["allowPrivilegeEscalation"] is False


def test_ray_of_pods_and_of_the_client_are_one_version(overlay: str) -> None:
    import importlib.metadata

    assert ray_service(overlay)["spec"]["rayClusterConfig"]["rayVersion"] == importlib.metadata.version("ray")


def test_a_new_head_finds_rays_state() -> None:
    options = ray_service("high-availability")["spec"]["rayClusterConfig"]["gcsFaultToleranceOptions"]
    assert options["redisAddress"] == "draftfleet-redis:6379"
    reference = options["redisPassword"]["valueFrom"]["secretKeyRef"]
    manifests = render("high-availability")
    (secret,) = of_kind(manifests, "Secret")
    assert (secret["metadata"]["name"], list(secret["data"])) == (reference["name"], [reference["key"]])
    assert "draftfleet-redis" in {m["metadata"]["name"] for m in of_kind(manifests, "Service")}


def test_no_single_pod_serves_alone() -> None:
    counts = fleet("high-availability").node_counts()
    assert all(count.min >= 2 for name, count in counts.items() if name != "head")
    assert fleet("high-availability").placement.router.replicas >= 2


class TestNetwork:
    """The policies, evaluated."""

    @pytest.fixture
    def config(self, overlay: str) -> FleetConfig:
        return fleet(overlay)

    @pytest.fixture
    def policies(self, overlay: str) -> list[dict[str, Any]]:
        return of_kind(render(overlay), "NetworkPolicy")

    @pytest.fixture
    def pods(self, overlay: str) -> dict[str, Place]:
        cluster = ray_service(overlay)["spec"]["rayClusterConfig"]
        groups = {"head": cluster["headGroupSpec"], **{g["groupName"]: g for g in cluster["workerGroupSpecs"]}}
        return {name: Place(group["template"]["metadata"]["labels"], OURS) for name, group in groups.items()}

    def test_clients_reach_gateways_and_nothing_else(
        self, config: FleetConfig, policies: list[dict[str, Any]], pods: dict[str, Place]
    ) -> None:
        doors = {config.serve.http_port, config.gateway.grpc_port}
        for pod in pods.values():
            for port in every_port(config):
                for stranger in (OUTSIDE, NEIGHBOUR):
                    passes = allowed(policies, OURS, stranger, pod, port)
                    assert passes == (port in doors and GATEWAY_LABEL in pod.labels), (pod, port)

    def test_rays_ports_are_open_among_its_pods(
        self, config: FleetConfig, policies: list[dict[str, Any]], pods: dict[str, Place]
    ) -> None:
        for source in pods.values():
            for target in pods.values():
                for port in rays_ports():
                    assert allowed(policies, OURS, source, target, port), (source, target, port)

    def test_drafts_pass_from_those_who_ask_to_those_who_draft(
        self, config: FleetConfig, policies: list[dict[str, Any]], pods: dict[str, Place]
    ) -> None:
        drafting = {p for d in config.drafters.values() for p in (d.ports.first, d.ports.last)}
        targets = {config.engine.ports.first, config.engine.ports.last}
        homes = {config.topology.home(kind) for kind in ("mtp", "dfly", "lookup")}
        asking = {config.topology.home("target"), config.topology.home("gateway")}
        for source_name, source in pods.items():
            for target_name, target in pods.items():
                if source_name == target_name:
                    continue  # a pod always reaches itself
                for port in drafting:
                    expected = source_name in asking and target_name in homes
                    assert allowed(policies, OURS, source, target, port) == expected, (source_name, target_name)
                for port in targets:
                    expected = source_name == config.topology.home("gateway") and target_name == "target"
                    assert allowed(policies, OURS, source, target, port) == expected, (source_name, target_name)

    def test_operator_and_prometheus_reach_what_they_need(
        self, policies: list[dict[str, Any]], pods: dict[str, Place]
    ) -> None:
        assert allowed(policies, OURS, OPERATOR, pods["head"], ports.DASHBOARD)
        for pod in pods.values():
            assert allowed(policies, OURS, PROMETHEUS, pod, ports.METRICS)
            assert not allowed(policies, OURS, PROMETHEUS, pod, ports.GCS)
            assert not any(allowed(policies, OURS, source, pod, ports.CLIENT) for source in pods.values())
            assert not allowed(policies, OURS, OPERATOR, pod, ports.GCS)

    def test_names_are_resolved_and_models_fetched(
        self, policies: list[dict[str, Any]], pods: dict[str, Place]
    ) -> None:
        names = Place({"k8s-app": "kube-dns"}, {"kubernetes.io/metadata.name": "kube-system"})
        for pod in pods.values():
            assert allowed(policies, OURS, pod, names, 53)
            assert allowed(policies, OURS, pod, OUTSIDE, 443)
            assert not allowed(policies, OURS, pod, OUTSIDE, 25)

    def test_redis_is_the_heads(self, overlay: str, policies: list[dict[str, Any]], pods: dict[str, Place]) -> None:
        redis = Place({"app.kubernetes.io/part-of": "draftfleet-redis"}, OURS)
        if overlay == "high-availability":
            for name, pod in pods.items():
                assert allowed(policies, OURS, pod, redis, 6379) == (name == "head")
            assert not allowed(policies, OURS, OUTSIDE, redis, 6379)


def rays_ports() -> list[int]:
    return [ports.GCS, ports.DASHBOARD, *(port for name, port in ports.EVERY_NODE.items() if "metrics" not in name)]


def every_port(config: FleetConfig) -> set[int]:
    own = [config.engine.ports, *(drafter.ports for drafter in config.drafters.values())]
    listening = {port for one in own for port in (one.first, one.last)}
    doors = {config.serve.http_port, config.gateway.grpc_port}
    return {*rays_ports(), ports.METRICS, ports.CLIENT, 22} | listening | doors
