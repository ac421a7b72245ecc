"""Writes what clusters are started from. One settings file is the source; nothing in what is written is edited by hand.

python -m orchestration.cluster.write                                    # again everything that is shipped
python -m orchestration.cluster.write aws fleet.yaml > cluster.yaml      # also: gcp, kubernetes
python -m orchestration.cluster.write on-premise fleet.yaml --hosts hosts.yaml > cluster.yaml
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from orchestration.cluster.hosts import Hosts
from orchestration.cluster.kubernetes import LABELS, NAME, objects
from orchestration.cluster.launcher import cloud_file, on_premise_file
from orchestration.cluster.machines import Cloud
from orchestration.sources import load

HERE = Path(__file__).parent
MONITORING = HERE.parent / "monitoring"
K8S = HERE.parent.parent / "k8s"
OVERLAYS = K8S / "overlays"
CLOUDS: dict[str, Cloud] = {"aws": "aws", "gcp": "gcp"}
KINDS = (*CLOUDS, "on-premise", "kubernetes")


def text(kind: str, fleet: Path, hosts: Path | None = None) -> str:
    """The file for `ray up` or for Kubernetes. Raises ValueError."""
    config = load(fleet, {}, {})
    source = f"# Written from {fleet.name} by `python -m orchestration.cluster.write`; change that file instead.\n"
    if kind == "kubernetes":
        tree = yaml.safe_load(fleet.read_text(encoding="utf-8"))
        return source + yaml.dump_all(objects(config, tree), Dumper=_Dumper, sort_keys=False, width=120)
    if kind == "on-premise":
        if hosts is None:
            raise ValueError("--hosts: a file that names the hosts is needed")
        named = Hosts.model_validate(yaml.safe_load(hosts.read_text(encoding="utf-8")))
        return source + _dump(on_premise_file(config, named))
    if (cloud := CLOUDS.get(kind)) is not None:
        return source + _dump(cloud_file(cloud, config))
    raise ValueError(f"{kind!r} is not known; it must be one of {', '.join(KINDS)}")


def shipped() -> Iterator[tuple[Path, str]]:
    """Every file that is shipped, and what belongs into it."""
    fleets = HERE / "fleets"
    for cloud in CLOUDS:
        yield HERE / f"{cloud}.yaml", text(cloud, fleets / "cloud.yaml")
    yield HERE / "on_premise.yaml", text("on-premise", fleets / "on_premise.yaml", fleets / "on_premise.hosts.yaml")
    for fleet in sorted(OVERLAYS.glob("*/fleet.yaml")):
        yield fleet.with_name("rayservice.yaml"), text("kubernetes", fleet)
    # Kustomize reads no files outside of its own folder.
    yield K8S / "components" / "monitoring" / "alerts.yaml", _alerts()
    dashboard = (MONITORING / "dashboard.json").read_text(encoding="utf-8")
    yield K8S / "components" / "monitoring" / "dashboard.json", dashboard


def _alerts() -> str:
    rules = yaml.safe_load((MONITORING / "alerts.yaml").read_text(encoding="utf-8"))
    return "# Written from orchestration/monitoring/alerts.yaml by `python -m orchestration.cluster.write`.\n" + _dump(
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": {"name": NAME, "labels": LABELS},
            "spec": rules,
        }
    )


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as they are; no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _string(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _string)


def _dump(tree: dict[str, Any]) -> str:
    return yaml.dump(tree, Dumper=_Dumper, sort_keys=False, width=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", nargs="?", choices=KINDS)
    parser.add_argument("fleet", nargs="?", type=Path)
    parser.add_argument("--hosts", type=Path)
    arguments = parser.parse_args()
    if (arguments.kind is None) != (arguments.fleet is None):
        parser.error("kind and fleet go together")
    try:
        if arguments.kind is None:
            for path, content in shipped():
                path.write_text(content, encoding="utf-8")
                print(path)
        else:
            sys.stdout.write(text(arguments.kind, arguments.fleet, arguments.hosts))
    except (OSError, ValueError, ValidationError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
