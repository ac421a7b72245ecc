"""Overlays as `kubectl kustomize` renders them."""

from __future__ import annotations

import copy
import functools
import gzip
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import BaseModel

from orchestration.cluster.write import K8S, OVERLAYS

HERE = Path(__file__).parent
NAMES = sorted(path.name for path in OVERLAYS.iterdir())
SECRETS = (
    "components/redis/password",
    "components/access/keys.json",
    "components/access/tls.crt",
    "components/access/tls.key",
)

Manifest = dict[str, Any]
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the pure one takes seconds for a megabyte


@functools.cache
def _rendered(overlay: str, component: str | None = None) -> str:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed, which renders the overlays")
    with tempfile.TemporaryDirectory() as folder:
        # The secrets of whoever works here are none of the test's business.
        copied = shutil.copytree(K8S, Path(folder) / "k8s", ignore=shutil.ignore_patterns(*map(_name, SECRETS)))
        for secret in SECRETS:
            (copied / secret).write_text("a secret of the test")
        if component is not None:
            tree = yaml.safe_load((copied / "overlays" / overlay / "kustomization.yaml").read_text())
            tree.setdefault("components", []).append(f"../../components/{component}")
            (copied / "overlays" / overlay / "kustomization.yaml").write_text(yaml.safe_dump(tree))
        result = subprocess.run(
            [kubectl, "kustomize", str(copied / "overlays" / overlay)], capture_output=True, text=True, timeout=60
        )
    assert result.returncode == 0, result.stderr
    return result.stdout


def _name(path: str) -> str:
    return path.rpartition("/")[2]


@functools.cache
def _parsed(overlay: str, component: str | None = None) -> list[Manifest]:
    return [manifest for manifest in yaml.load_all(_rendered(overlay, component), Loader=_LOADER) if manifest]


def render(overlay: str, component: str | None = None) -> list[Manifest]:
    """The caller's own copy; a component may be added to what the overlay has."""
    return copy.deepcopy(_parsed(overlay, component))


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def ray_service(overlay: str) -> Manifest:
    (service,) = of_kind(render(overlay), "RayService")
    return service


def pod_specs(overlay: str) -> Iterator[tuple[str, Manifest]]:
    """Every pod that the overlay brings up, by the name of its pool."""
    for manifest in render(overlay):
        if manifest["kind"] == "RayService":
            cluster = manifest["spec"]["rayClusterConfig"]
            yield "head", cluster["headGroupSpec"]["template"]["spec"]
            for group in cluster["workerGroupSpecs"]:
                yield group["groupName"], group["template"]["spec"]
        elif manifest["kind"] in ("StatefulSet", "Deployment"):
            yield manifest["metadata"]["name"], manifest["spec"]["template"]["spec"]


@functools.cache
def ray_service_validator() -> jsonschema.Draft202012Validator:
    """Of the CRD's schema, closed: a key that it does not know is an error, where the API server would prune it."""
    with gzip.open(HERE / "kuberay" / "rayservices.yaml.gz") as file:
        crd = yaml.load(file, Loader=_LOADER)
    (version,) = [version for version in crd["spec"]["versions"] if version["name"] == "v1"]
    return jsonschema.Draft202012Validator(_closed(version["schema"]["openAPIV3Schema"]))


def _closed(node: Any) -> Any:
    if isinstance(node, list):
        return [_closed(item) for item in node]
    if not isinstance(node, dict):
        return node
    if node.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    if "properties" in node and node.get("type") == "object" and not node.get("x-kubernetes-preserve-unknown-fields"):
        node.setdefault("additionalProperties", False)
        # The API server fills these in before it asks for them.
        filled = {name for name, field in node["properties"].items() if "default" in field}
        node["required"] = [name for name in node.get("required", []) if name not in filled]
    if node.get("type") == "object" and set(node) <= {"type", "description"}:
        return {"type": "object"}  # metadata
    return {key: _closed(value) for key, value in node.items()}


def unknown_keys(model: type[BaseModel], tree: dict[str, Any], path: str = "") -> Iterator[str]:
    """Keys that pydantic would drop silently."""
    for key, value in tree.items():
        field = model.model_fields.get(key)
        if field is None:
            yield f"{path}{key}"
            continue
        nested = _models(field.annotation)
        for item in value if isinstance(value, list) else [value]:
            if nested and isinstance(item, dict):
                yield from unknown_keys(nested[0], item, f"{path}{key}.")


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in getattr(annotation, "__args__", ()) for model in _models(part)]
