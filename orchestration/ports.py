"""Ports of this machine."""

from __future__ import annotations

import socket

from orchestration.config import FleetConfig


class PortTakenError(OSError):
    """Another process listens there; the message names the setting and how to choose another."""


def check_port_free(setting: str, host: str, port: int) -> None:
    """Raises PortTakenError when nothing could listen on `port` of `host`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # Servers set it too; without it the quiet connections of an earlier run would look like a taken port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise PortTakenError(
                f"{setting}: port {port} of {host} cannot be used ({error.strerror}); choose another one"
            ) from error


def check_ports_free(config: FleetConfig) -> None:
    """Raises PortTakenError when a public port of the service is taken on this machine."""
    check_port_free("serve.http_port", config.serve.http_host, config.serve.http_port)
    check_port_free("gateway.grpc_port", config.gateway.host, config.gateway.grpc_port)


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that were free a moment ago, all different."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
