"""What NetworkPolicies of one namespace let through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Labels = Mapping[str, str]
Manifest = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """A pod, or with `namespace` None a place outside of the cluster."""

    labels: Labels
    namespace: Labels | None


def allowed(policies: list[Manifest], namespace: Labels, source: Place, target: Place, port: int) -> bool:
    """Whether a TCP connection passes: what leaves the source and what enters the target must both be let through."""
    out = _passes(policies, namespace, source, target, port, "egress")
    into = _passes(policies, namespace, target, source, port, "ingress")
    return out and into


def _passes(policies: list[Manifest], namespace: Labels, pod: Place, peer: Place, port: int, way: str) -> bool:
    if pod.namespace != namespace:
        return True  # not ours to say
    selecting = [
        policy["spec"]
        for policy in policies
        if way.capitalize() in policy["spec"]["policyTypes"] and _matches(policy["spec"]["podSelector"], pod.labels)
    ]
    if not selecting:
        return True
    peers = "to" if way == "egress" else "from"
    return any(
        _has_port(rule, port) and (peers not in rule or any(_is_peer(p, peer, namespace) for p in rule[peers]))
        for spec in selecting
        for rule in spec.get(way, ())
    )


def _has_port(rule: Manifest, port: int) -> bool:
    return "ports" not in rule or any(
        p["protocol"] == "TCP" and p["port"] <= port <= p.get("endPort", p["port"]) for p in rule["ports"]
    )


def _is_peer(named: Manifest, peer: Place, namespace: Labels) -> bool:
    if peer.namespace is None:
        return False
    if "namespaceSelector" in named:
        is_there = _matches(named["namespaceSelector"], peer.namespace)
    else:
        is_there = peer.namespace == namespace
    return is_there and _matches(named.get("podSelector", {}), peer.labels)


def _matches(selector: Manifest, labels: Labels) -> bool:
    assert selector.keys() <= {"matchLabels", "matchExpressions"}
    for expression in selector.get("matchExpressions", ()):
        assert expression["operator"] == "In"
        if labels.get(expression["key"]) not in expression["values"]:
            return False
    return selector.get("matchLabels", {}).items() <= labels.items()
