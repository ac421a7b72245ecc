"""What is left open is fitted to the machine; what is said stays."""

from __future__ import annotations

import socket

import pytest

from orchestration.checks import check_cores, check_memory, check_port, check_python
from orchestration.machine import fit, num_cores, wanted
from orchestration.ports import PortTakenError, check_port_free, free_ports
from orchestration.sources import load


def test_threads_and_gpu_are_fitted() -> None:
    fitted = fit(load(None, {}, {}), cores=8, has_gpu=True)
    assert fitted.engine.threads == 8
    assert fitted.placement.target.num_gpus == 1.0
    two = fit(load(None, {"placement.target.replicas": 2}, {}), cores=8, has_gpu=True)
    assert (two.engine.threads, two.placement.target.num_gpus) == (4, 0.5)
    many = fit(load(None, {"placement.target.replicas": 16}, {}), cores=8, has_gpu=False)
    assert (many.engine.threads, many.placement.target.num_gpus) == (1, 0.0)


def test_what_the_user_said_stays() -> None:
    flags = {"engine.threads": 3, "engine.device": "cpu"}
    fitted = fit(load(None, flags, {}), cores=8, has_gpu=True)
    assert (fitted.engine.threads, fitted.placement.target.num_gpus) == (3, 0.0)
    quarter = fit(load(None, {"placement.target.num_gpus": 0.25}, {}), cores=8, has_gpu=True)
    assert quarter.placement.target.num_gpus == 0.25


def test_gateways_of_one_machine_do_not_share_a_port() -> None:
    two = {"placement.gateway.replicas": 2}
    with pytest.raises(ValueError, match=r"placement\.gateway\.replicas: 2 cannot listen on one gateway\.grpc_port"):
        fit(load(None, two, {}), cores=2, has_gpu=False)
    fit(load(None, {**two, "gateway.grpc_port": 0}, {}), cores=2, has_gpu=False)


def test_one_machine_offers_what_all_replicas_want() -> None:
    flags = {
        "placement.target": {"replicas": 2, "num_cpus": 1.5, "resources": {"big": 1}},
        "placement.gateway.num_cpus": 0,
        "placement.router.num_cpus": 0,
        "placement.dcut_num_cpus": 0.25,
        "drafters.lookup": {"replicas": 3, "num_cpus": 0.5, "resources": {"big": 0.5, "small": 1}},
    }
    share = wanted(load(None, flags, {}))
    assert share.num_cpus == 5  # 3 + 0.25 + 1.5, rounded up
    assert share.resources == {"big": 3.5, "small": 3}
    assert wanted(load(None, {}, {})).num_cpus == 2


def test_a_taken_port_is_told_before_anything_starts() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(PortTakenError, match=f"serve.http_port: port {port} of 127.0.0.1 cannot be used"):
            check_port_free("serve.http_port", "127.0.0.1", port)
        assert check_port("HTTP port", "127.0.0.1", port, "--http-port").level == "warn"
    check_port_free("serve.http_port", "127.0.0.1", port)
    assert check_port("HTTP port", "127.0.0.1", port, "--http-port").level == "ok"


def test_free_ports_differ() -> None:
    ports = free_ports(8)
    assert len(set(ports)) == 8
    for port in ports:
        check_port_free("any", "127.0.0.1", port)


def test_findings_have_advice_where_something_is_wrong() -> None:
    assert num_cores() >= 1
    assert check_python((3, 9, 18)).level == "fail"
    assert check_python((3, 10, 0)).level == "ok"
    assert check_cores(1).level == "warn"
    assert check_memory(1.0).level == "warn"
    for check in (check_python((3, 9, 18)), check_cores(1), check_memory(1.0)):
        assert check.advice
